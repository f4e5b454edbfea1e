"""The gain of a second process from the caches of the first: ResNet-50 read, compiled and run once, with cold and warm caches.

`python benchmarks/warm_start.py [-d OPENCL.0] [--model resnet50] [--repeats 5] [--json]` starts fresh processes in turn and
reports medians in milliseconds. `cold`: no cache at all. `warm`: dovetail's cache is that of an earlier process, the driver's
is empty. `warm, driver too`: as a second process finds it. `onnxruntime` creates a session from the same file. `compile` is
`compile_model` with all shapes given, of which `passes` is the work on the graph; `first run` is the first inference, where
some drivers compile once more for the sizes of the work groups.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from _common import MODELS, Row, compiled_once, emit, limit_threads, median, parser

OURS = """
import json, sys, time
from _common import MODELS
import numpy as np, dovetail
spec, device, clock = MODELS[sys.argv[1]], sys.argv[2], time.perf_counter
core = dovetail.Core()
inputs = spec.inputs(np.random.default_rng(0), 1)
times = [clock()]
model = core.read_model(spec.path)
times.append(clock())
compiled = core.compile_model(model, device)
report = compiled.report({name: array.shape for name, array in inputs.items()})
times.append(clock())
compiled(inputs)
times.append(clock())
read, build, first = (1e3 * (b - a) for a, b in zip(times, times[1:]))
print(json.dumps({"read": read, "compile": build, "passes": 1e3 * report.seconds["passes"], "first run": first}))
"""
PEER = """
import json, sys, time
from _common import MODELS
import numpy as np, onnxruntime as ort
spec, threads, clock = MODELS[sys.argv[1]], int(sys.argv[2]), time.perf_counter
inputs = spec.inputs(np.random.default_rng(0), 1)
options = ort.SessionOptions()
options.intra_op_num_threads = threads
times = [clock()]
session = ort.InferenceSession(spec.path, options, providers=["CPUExecutionProvider"])
times.append(clock())
session.run(None, inputs)
times.append(clock())
build, first = (1e3 * (b - a) for a, b in zip(times, times[1:]))
print(json.dumps({"read": None, "compile": build, "passes": None, "first run": first}))
"""
DRIVER_CACHES = ("POCL_CACHE_DIR", "CUDA_CACHE_PATH")


def measured(code: str, arguments: list[str], environment: dict[str, str]) -> Row:
    """The figures that a fresh process prints; RuntimeError with its standard error if it fails."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), environment.get("PYTHONPATH")]))
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env={**environment, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{arguments} exited with {done.returncode}: {done.stderr[-2000:]}")
    found: Row = json.loads(done.stdout)
    return found


def one_round(model: str, device: str, folder: Path) -> dict[str, Row]:
    """Cold, warm, warm again, and the peer."""
    own, driver = folder / "own", folder / "driver"
    environment = compiled_once(folder / "modules") | {"DOVETAIL_CACHE_DIR": str(own)} | dict.fromkeys(DRIVER_CACHES, str(driver))
    found = {}
    for what, emptied in (("cold", (own, driver)), ("warm", (driver,)), ("warm, driver too", ())):
        for one in emptied:
            shutil.rmtree(one, ignore_errors=True)
            one.mkdir()
        found[what] = measured(OURS, [model, device], environment)
    return {**found, "onnxruntime": measured(PEER, [model, "2"], environment)}


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", default="OPENCL.0")
    options.add_argument("--model", choices=sorted(MODELS), default="resnet50")
    options.add_argument("--repeats", type=int, default=5)
    arguments = options.parse_args()
    limit_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        rounds = [one_round(arguments.model, arguments.device, Path(folder)) for _ in range(arguments.repeats)]
    rows: list[Row] = []
    for what, first in rounds[0].items():
        medians = {name: None if value is None else median([r[what][name] for r in rounds]) for name, value in first.items()}
        rows.append({"start": what, **medians})
    by = {row["start"]: row for row in rows}
    warm = by["warm, driver too"]
    summary = {
        "device": arguments.device,
        "compile, warm / cold (goal 0.25)": by["warm"]["compile"] / by["cold"]["compile"],
        "read and compile, warm / session of onnxruntime (goal 1.2)": (warm["read"] + warm["compile"])
        / by["onnxruntime"]["compile"],
    }
    emit(arguments.json, rows, summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
