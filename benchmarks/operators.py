"""Models of one operator, in sizes that real networks have, beside onnxruntime: which operators are slow on a device?

    python benchmarks/operators.py -d ONEDNN -d NUMPY
    python benchmarks/operators.py -d ONEDNN --only Conv --only Pool

The networks of other benchmarks hold a part of the operators only. Each runtime is measured in processes of its own, in turn;
times are microseconds of the fastest run, `first ms` is from the file to the first result. `difference` is the largest one over
the largest value, and for whole numbers the share of those that differ. What one of the two does not run has no ratio.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _common import Arrays, Row, emit, geometric_mean, limit_threads, median, parser
from _operators import Case

PEER = "onnxruntime"
RUNS, SECONDS, LIMIT = 2000, 0.1, 10
"""The most runs of a model, the time after which no other begins, and the seconds after which it is given up."""


def cases(only: list[str]) -> Iterator[Case]:
    """Those whose names hold one of these texts; all for none."""
    from _operators_applications import language, speech, vision
    from _operators_networks import learning, microsoft, products, sequences, texts
    from _operators_tensors import detection, elementwise, images, movement, reductions

    areas = [elementwise, reductions, movement, images, detection, products, sequences, learning, microsoft, texts]
    for area in (*areas, vision, speech, language):
        yield from (one for one in area() if not only or any(text in one.name for text in only))


def loader(runtime: str, threads: int) -> Callable[[bytes], Callable[[Arrays], list[Any]]]:
    """Makes calls of a runtime from ONNX files."""
    if runtime == PEER:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 4

        def peer(model: bytes) -> Callable[[Arrays], list[Any]]:
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            return lambda feed: list(session.run(None, feed))

        return peer
    import dovetail

    core = dovetail.Core()

    def ours(model: bytes) -> Callable[[Arrays], list[Any]]:
        compiled = core.compile_model(core.read_model(model, "onnx"), runtime)
        return lambda feed: list(compiled(feed).values())

    return ours


def measured(case: Case, load: Callable[[bytes], Callable[[Arrays], list[Any]]]) -> tuple[dict[str, float], list[Any]]:
    """Times and outputs of one model."""
    model, feed = case.model(), case.feed()
    start = time.perf_counter()
    run = load(model)
    outputs = run(feed)
    first, best, runs, end = time.perf_counter() - start, np.inf, 0, time.perf_counter() + SECONDS
    while runs < 3 or (runs < RUNS and time.perf_counter() < end):
        start = time.perf_counter()
        run(feed)
        best, runs = min(best, time.perf_counter() - start), runs + 1
    return {"us": best * 1e6, "first ms": first * 1e3}, outputs


def work(runtime: str, arguments: Any, folder: Path) -> None:
    """Measure all models in this process; the figures go to stdout, the outputs into a folder."""
    load, found = loader(runtime, arguments.threads), {}

    def give_up(*_: Any) -> None:
        raise TimeoutError(f"more than {LIMIT} s")

    signal.signal(signal.SIGALRM, give_up)
    for case in cases(arguments.only):
        signal.alarm(LIMIT)
        try:
            found[case.name], outputs = measured(case, load)
            plain = {f"{i}": np.asarray(v) for i, v in enumerate(outputs) if np.asarray(v).dtype != object}
            np.savez(folder / f"{runtime}-{case.name}.npz", **plain)
        except Exception as error:  # a model that the runtime refuses is a row of the table
            found[case.name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:120]}
        finally:
            signal.alarm(0)
    print(json.dumps(found))


def best(every: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The figures of a model over all rounds."""
    found = [one[name] for one in every]
    failed = next((one for one in found if "error" in one), None)
    return failed or {key: min(one[key] for one in found) for key in ("us", "first ms")}


def difference(folder: Path, device: str, name: str) -> float | None:
    """Between the outputs of a device and of onnxruntime."""
    pair = [folder / f"{runtime}-{name}.npz" for runtime in (device, PEER)]
    if not all(path.exists() for path in pair):
        return None
    ours, theirs = (np.load(path) for path in pair)
    return max([_distance(ours[key], theirs[key]) for key in theirs.files], default=0.0)


def _distance(ours: Any, theirs: Any) -> float:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return np.inf
    if not theirs.size or ours.dtype.kind != "f":
        return float(np.mean(ours != theirs)) if theirs.size else 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.where((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)), 0, np.abs(ours.astype(np.float64) - theirs))
    scale = np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0)
    return float(np.nan_to_num(gap.max(), nan=np.inf) / (scale or 1.0))


def rows(device: str, every: dict[str, list[dict[str, Any]]], folder: Path) -> list[Row]:
    """The models, those with the largest ratio first."""
    found = []
    for name in every[PEER][0]:
        ours, theirs = best(every[device], name), best(every[PEER], name)
        ratio = ours["us"] / theirs["us"] if "us" in ours and "us" in theirs else None
        found.append(
            {
                "model": name,
                "device": device,
                "us": ours.get("us"),
                f"{PEER} us": theirs.get("us"),
                "ratio": ratio,
                "first ms": ours.get("first ms"),
                "difference": difference(folder, device, name),
                "refused": ours.get("error") or (f"{PEER}: {theirs['error']}" if "error" in theirs else ""),
            }
        )
    return sorted(found, key=lambda row: -(row["ratio"] or 1e9 * bool(row["us"] is None)))


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", action="append", help="a device of dovetail; repeatable; default ONEDNN")
    options.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="models whose name has this text; repeatable"
    )
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--worker", nargs=2, metavar=("RUNTIME", "FOLDER"), help="for the program itself")
    arguments = options.parse_args()
    limit_threads(arguments.threads)
    if arguments.worker:
        work(arguments.worker[0], arguments, Path(arguments.worker[1]))
        return 0
    devices = arguments.device or ["ONEDNN"]
    every: dict[str, list[dict[str, Any]]] = {runtime: [] for runtime in (PEER, *devices)}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.rounds):
            for runtime, found in every.items():
                command = [sys.executable, __file__, "--worker", runtime, folder, "--threads", str(arguments.threads)]
                command += [part for text in arguments.only for part in ("--only", text)]
                found.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))
        table = [row for device in devices for row in rows(device, every, Path(folder))]
    summary: dict[str, Any] = {}
    for device in devices:
        ratios = [row["ratio"] for row in table if row["device"] == device and row["ratio"]]
        summary[f"models on {device}"] = len(ratios)
        summary[f"geometric mean of the ratios, {device}"] = geometric_mean(ratios)
        summary[f"median, 90th percentile, {device}"] = f"{median(ratios):.3g}, {np.percentile(ratios, 90):.3g}"
        summary[f"above 2, above 5, {device}"] = f"{sum(r > 2 for r in ratios)}, {sum(r > 5 for r in ratios)}"
    emit(arguments.json, table, summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
