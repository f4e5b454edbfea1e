"""From a file to a model that is ready to run: import, reading and compiling, against the sessions of onnxruntime and OpenVINO.

`python benchmarks/sessions.py [-d ONEDNN -d NUMPY] [--only resnet50] [--repeats 7] [--json]` starts a fresh process for each
runtime in turn, batch 1, 2 threads, all shapes known, and reports medians in milliseconds. `import` is the runtime's own
import after numpy's; `ready` is the rest: dovetail's `Core()`, `read_model`, `compile_model`, the plan for the shapes
and a request; onnxruntime's `InferenceSession`; OpenVINO's `Core()`, `read_model`, `reshape` and `compile_model` in f32. `read`
and `passes` are the parts of dovetail's that it measures separately. `CPU` is the time of all threads of the process for `ready`,
which varies less than wall time if other programs use the machine. `again` is the same once more in the same process.
"""

from __future__ import annotations

import functools
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from _common import MODELS, Row, compiled_once, emit, geometric_mean, limit_threads, median, parser
from _runners import OnnxRuntime, OpenVino

THREADS = 2
PEERS = ("onnxruntime", "openvino")
Load = Callable[[], Row]


def cpu_ms() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return 1e3 * (used.ru_utime + used.ru_stime)


def ours(device: str, model: str, shapes: Mapping[str, tuple[int, ...]]) -> Row:
    """Read, compile, plan, and make a request: the milliseconds of reading and of the passes."""
    dovetail: Any = import_module("dovetail")
    core, start = dovetail.Core(), time.perf_counter()
    read = core.read_model(MODELS[model].path)
    after = time.perf_counter()
    compiled = core.compile_model(read, device)
    report = compiled.report(shapes)
    compiled.create_infer_request()
    return {"read": 1e3 * (after - start), "passes": 1e3 * report.seconds["passes"]}


def peer(runtime: str, model: str) -> Row:
    spec = MODELS[model]
    {"onnxruntime": OnnxRuntime, "openvino": OpenVino}[runtime](spec.path, spec.dimensions(1, spec.sizes[0]), THREADS)
    return {"read": None, "passes": None}


def child(runtime: str, model: str) -> Row:
    """In a fresh process: import, load, load again."""
    shapes = {name: array.shape for name, array in MODELS[model].inputs(np.random.default_rng(0), 1).items()}
    start = time.perf_counter()
    module: Any = import_module(runtime if runtime in PEERS else "dovetail")
    load: Load = functools.partial(peer, runtime, model)
    if runtime not in PEERS:
        _ = module.Core  # `import dovetail` alone loads nothing
        load = functools.partial(ours, runtime, model, shapes)
    imported, used = time.perf_counter(), cpu_ms()
    parts = load()
    ready, spent = time.perf_counter(), cpu_ms() - used
    load()
    again = time.perf_counter()
    figures = {"import": imported - start, "ready": ready - imported, "again": again - ready}
    return {**{name: 1e3 * value for name, value in figures.items()}, **parts, "CPU": spent}


def measured(runtime: str, model: str, environment: Mapping[str, str]) -> Row:
    """The figures of a fresh process; RuntimeError with its standard error if it fails."""
    command = [sys.executable, str(Path(__file__)), "--child", runtime, "--only", model]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{runtime} on {model} exited with {done.returncode}: {done.stderr[-2000:]}")
    found: Row = json.loads(done.stdout)
    return found


def rows_of(model: str, runtimes: list[str], repeats: int) -> list[Row]:
    """A row of medians for each runtime."""
    samples: dict[str, list[Row]] = {runtime: [] for runtime in runtimes}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeats + 1):
            for runtime in runtimes:
                samples[runtime].append(measured(runtime, model, compiled_once(folder)))
    rows: list[Row] = []
    for runtime, found in samples.items():
        # The first round compiles the modules and warms the file cache.
        figures = {n: None if v is None else median([one[n] for one in found[1:]]) for n, v in found[0].items()}
        rows.append({"model": model, "runtime": runtime, **figures})
    session = rows[0]
    return [{**row, "ready x": row["ready"] / session["ready"], "CPU x": row["CPU"] / session["CPU"]} for row in rows]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", action="append", help="repeatable; ONEDNN and NUMPY by default")
    options.add_argument("--only", action="append", choices=sorted(MODELS))
    options.add_argument("--repeats", type=int, default=7)
    options.add_argument("--child", help="a runtime or device, in the process that this script starts for it")
    arguments = options.parse_args()
    limit_threads(THREADS)
    if arguments.child:
        print(json.dumps(child(arguments.child, arguments.only[0])))
        return 0
    devices = arguments.device or ["ONEDNN", "NUMPY"]
    models = arguments.only or [name for name in MODELS if name != "ocl_engine"]
    rows = [row for model in models for row in rows_of(model, [*PEERS, *devices], arguments.repeats)]
    summary = {
        f"{device}, ready / onnxruntime's (goal 1.2), geometric mean": geometric_mean(
            [row["ready x"] for row in rows if row["runtime"] == device]
        )
        for device in devices
    }
    emit(arguments.json, rows, summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
