"""From the start of a program to its first result: import, session and first run, against onnxruntime.

    python benchmarks/first_inference.py -d ONEDNN -d NUMPY --download wheels
    python benchmarks/first_inference.py -d ONEDNN --after minilm --after mobilenet_v2
    python benchmarks/first_inference.py -d ONEDNN --cached

Each figure is from a fresh process, the runtimes in turn: the least of the repeats, in milliseconds. `first` is what comes after
the import: the session and its first run. `whole` has the import too, after that of NumPy. `CPU` is the time of all threads for
`first`; it can be compared when other programs use the machine. With `--after` each process has run these models before, as a
service has that loads one more. With `--cached` each process but the first finds the plans of an earlier one in `CACHE_DIR`, and
onnxruntime reads the model as without. `x` are multiples of onnxruntime's. The models are those of
`sessions.py` and `real_models.py`, the latter from wheels that pip fetches into a folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from _common import MODELS, QUANTIZED, Arrays, Row, compiled_once, emit, geometric_mean, limit_threads, parser
from _real_models import REAL_MODELS
from _runners import Dovetail, OnnxRuntime, Runner
from real_models import fetch
from sessions import cpu_ms

OWN = MODELS | QUANTIZED
THREADS = 2
PEER = "onnxruntime"
FIGURES = ("import", "first", "whole", "CPU")


def inputs_of(model: str) -> Arrays:
    rng = np.random.default_rng(0)
    return OWN[model].inputs(rng, 1) if model in OWN else REAL_MODELS[model].make(rng)


def child(runtime: str, model: str, path: Path, after: list[str], cache: str) -> Row:
    """In a fresh process: import, sessions and runs of the models before, session, one run."""
    inputs = inputs_of(model)
    options = {"CACHE_DIR": cache} if cache else {}

    def session(path: Path) -> Runner:
        return OnnxRuntime(path, {}, THREADS) if runtime == PEER else Dovetail(path, runtime, options)

    start = time.perf_counter()
    module: Any = import_module(PEER if runtime == PEER else "dovetail")
    _ = None if runtime == PEER else module.Core  # `import dovetail` alone loads nothing
    imported = time.perf_counter() - start
    for other in after:
        session(OWN[other].path).run(inputs_of(other))
    start, used = time.perf_counter(), cpu_ms()
    runner = session(path)
    runner.run(inputs)
    first, spent = time.perf_counter() - start, cpu_ms() - used
    figures = {"import": imported, "first": first, "whole": imported + first}
    return {**{name: 1e3 * value for name, value in figures.items()}, "CPU": spent}


def measured(runtime: str, model: str, path: Path, after: list[str], cache: str, environment: dict[str, str]) -> Row:
    """The figures of a fresh process; RuntimeError with its standard error if it fails."""
    command = [sys.executable, str(Path(__file__)), "--child", runtime, "--only", model, "--file", str(path), "--folder", cache]
    command += [word for other in after for word in ("--after", other)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{runtime} on {model} exited with {done.returncode}: {done.stderr[-2000:]}")
    found: Row = json.loads(done.stdout)
    return found


def rows_of(model: str, path: Path, runtimes: list[str], after: list[str], repeats: int, compiled: str, cache: str) -> list[Row]:
    """A row for each runtime."""
    samples: dict[str, list[Row]] = {runtime: [] for runtime in runtimes}
    for number in range(repeats + 1):
        for runtime in runtimes:
            found = measured(runtime, model, path, after, cache, compiled_once(compiled))
            if number:  # the first round compiles modules and kernels, and brings files into the system's cache
                samples[runtime].append(found)
    least = {runtime: {name: min(one[name] for one in taken) for name in FIGURES} for runtime, taken in samples.items()}
    base = least[PEER]
    return [
        {"model": model, "runtime": runtime, **row, **{f"{name} x": row[name] / base[name] for name in FIGURES[1:]}}
        for runtime, row in least.items()
    ]


def main() -> int:
    names = [*(name for name in OWN if name != "ocl_engine"), *REAL_MODELS]
    options = parser(__doc__)
    options.add_argument("-d", "--device", action="append", help="repeatable; ONEDNN and NUMPY by default")
    options.add_argument("--only", action="append", choices=names)
    options.add_argument("--after", action="append", choices=list(OWN), default=[], help="repeatable; run in each process before")
    options.add_argument("--download", type=Path, metavar="FOLDER", help="fetch the wheels of real models into this folder")
    options.add_argument("--cached", action="store_true", help="measure the second process with CACHE_DIR")
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--child", help="a runtime or device, in the process that this script starts for it")
    options.add_argument("--file", type=Path, help="the model of that process")
    options.add_argument("--folder", default="", help="its CACHE_DIR")
    arguments = options.parse_args()
    limit_threads(THREADS)
    if arguments.child:
        print(json.dumps(child(arguments.child, arguments.only[0], arguments.file, arguments.after, arguments.folder)))
        return 0
    if arguments.download:
        fetch(arguments.download)
    devices, rows = arguments.device or ["ONEDNN", "NUMPY"], []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only or names:
            path = OWN[name].path if name in OWN else Path(folder, "model.onnx")
            if name in REAL_MODELS:
                content = REAL_MODELS[name].content(arguments.download)
                if content is None:
                    continue
                path.write_bytes(content)
            cache = str(Path(folder, "plans")) if arguments.cached else ""
            rows += rows_of(name, path, [PEER, *devices], arguments.after, arguments.repeats, folder, cache)
    means = {
        f"{device}, {name} / onnxruntime's (goal 1.5), geometric mean of {what}": geometric_mean(ratios)
        for device in devices
        for name in ("first", "whole")
        for what, is_made in (("float models", False), ("models quantized here", True))
        if (ratios := [r[f"{name} x"] for r in rows if r["runtime"] == device and (r["model"] in QUANTIZED) is is_made])
    }
    emit(arguments.json, rows, means)
    return 0


if __name__ == "__main__":
    sys.exit(main())
