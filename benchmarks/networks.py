"""Networks unlike classifiers, and model files of your own: are the results onnxruntime's, and how long do they take?

`python benchmarks/networks.py [-d NUMPY -d ONEDNN] [--only NAME] [--json]` exports small networks with random weights to a
temporary folder: sound, recurrence, loops and branches, text in images, gates, upsampling, caches of keys and values, at
several shapes each. `python benchmarks/networks.py --file MODEL.onnx --dim N=1 --dim W=320` takes a file instead, with random
inputs (floats of a normal distribution, integers 0 and 1).

`relative` is the largest difference over the largest absolute value that onnxruntime gives. Times are CPU time on one thread,
so that other work on the machine changes little; `first` is the first run of a shape, planning included, `ms` the median. Exit
code 1 when a result is further off than 1e-4, or a device does not run the model.
"""

from __future__ import annotations

import functools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from _common import Arrays, Row, add_files, emit, error_figures, geometric_mean, limit_threads, median, parser
from _networks import NETWORKS, export
from _runners import Dovetail, OnnxRuntime, Runner, inputs_of

LIMIT = 1e-4


def spent(call: Callable[[], object]) -> float:
    """Milliseconds of CPU time of one call."""
    start = time.process_time()
    call()
    return (time.process_time() - start) * 1e3


def measured(calls: Mapping[str, Callable[[], object]], rounds: int, budget_ms: float = 100.0) -> dict[str, float]:
    """The median time of each call, in rounds that visit all in turn."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            end = time.process_time() + budget_ms / 1e3
            call()
            while not samples[name] or time.process_time() < end:
                samples[name].append(spent(call))
    return {name: median(values) for name, values in samples.items()}


def distance(found: Arrays, expected: Arrays) -> float:
    """The largest relative difference; for whole numbers the share of those that differ."""
    figures = [
        error_figures(found[name], value)[1] if value.dtype.kind == "f" else float(np.mean(found[name] != value))
        for name, value in expected.items()
    ]
    return max(figures)


def check(label: str, path: Path, every: list[Arrays], devices: list[str], rounds: int) -> Iterator[Row]:
    """A row for each device and input."""
    runners: dict[str, Runner] = {}
    peer = OnnxRuntime(path, {}, threads=1)
    errors: dict[str, str] = {}
    for device in devices:
        try:
            runners[device] = Dovetail(path, device)
        except Exception as error:  # one device that refuses a model must not end the comparison
            errors[device] = f"{type(error).__name__}: {error}"
    for inputs in every:
        shape = ", ".join(f"{name} {list(value.shape)}" for name, value in inputs.items() if value.ndim)
        expected = peer.run(inputs)
        first, apart = {}, {}
        for device, runner in runners.items():
            try:
                first[device] = spent(functools.partial(runner.run, inputs))
                apart[device] = distance(runner.run(inputs), expected)
            except Exception as error:
                errors[device] = f"{type(error).__name__}: {error}"
        calls = {name: functools.partial(runners[name].run, inputs) for name in apart}
        times = measured({"onnxruntime": functools.partial(peer.run, inputs), **calls}, rounds)
        for device in devices:
            yield {
                "network": label,
                "inputs": shape,
                "device": device,
                "relative": apart.get(device),
                "first ms": first.get(device),
                "ms": times.get(device),
                "x onnxruntime": times[device] / times["onnxruntime"] if device in times else None,
                "result": "PASS" if apart.get(device, 1.0) <= LIMIT else f"FAIL {errors.get(device, '')}".strip(),
            }


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", action="append", help="a device (repeatable; NUMPY and ONEDNN by default)")
    options.add_argument("--only", choices=sorted(NETWORKS), action="append", help="only this network (repeatable)")
    add_files(options)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seed", type=int, default=0)
    arguments = options.parse_args()
    limit_threads(1)
    devices = arguments.device or ["NUMPY", "ONEDNN"]
    rows: list[Row] = []
    for path in arguments.file:
        rows += check(path.name, path, [inputs_of(path, dict(arguments.dim), arguments.seed)], devices, arguments.rounds)
    with tempfile.TemporaryDirectory() as folder:
        for name in [] if arguments.file else arguments.only or NETWORKS:
            every = [NETWORKS[name].arrays(sizes, arguments.seed) for sizes in NETWORKS[name].sizes]
            rows += check(name, export(name, Path(folder)), every, devices, arguments.rounds)
    summary: dict[str, Any] = {"failed": sum(row["result"] != "PASS" for row in rows)}
    for device in devices:
        ratios = [row["x onnxruntime"] for row in rows if row["device"] == device and row["x onnxruntime"]]
        summary[f"{device}, geometric mean x onnxruntime"] = geometric_mean(ratios) if ratios else None
    emit(arguments.json, rows, summary)
    return 1 if summary["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
