"""The cost of a trace, and whether its slices add up to the time of a run.

`python benchmarks/tracing.py [-d NUMPY -d ONEDNN -d OPENCL] [--only digits] [--rounds 31] [--cpu] [--json]`. Three requests of
one compiled model run in turn, one as it is, one in a `Trace`, and one in a `Trace(complete=True)`, which has all nodes of all
runs. `on %` and `complete %` are the medians over the rounds of their ratios to the first, less one, after the first runs, which
have all nodes in every trace. `--cpu` takes the CPU time of the process in place of the time of the clock, for a busy machine.
`slices %` is the sum of the slices of a recorded run, with dovetail's own time between them, over its wall time, and `unnamed`
counts slices of kernels that name no node of the file. `digits` is the network of dovetail-demo, `loop` a Loop of 50 iterations
of a recurrent cell with 64 numbers of state, `tiny loop` one whose iterations have a single product of 16 x 16. The others need
`python benchmarks/models.py export`.
"""

from __future__ import annotations

import functools
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from _common import MODELS, Arrays, Row, emit, limit_threads, median, milliseconds, parser
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.runtime import Trace
from dovetail_views.trace_file import events

GOAL = {"on %": 5.0, "slices %": 2.0}
CASES = ("digits", "loop", "tiny loop", "resnet50", "minilm")
STEPS = 50
SETTLED, LONG = 140, 15.0
"""Calls before the measurement of runs of less than so many milliseconds."""
LEAVES = ("kernel", "transfer", "enqueue", "wait", "overhead")


def loop(nodes: list[onnx.NodeProto], state: list[int], constants: dict[str, NDArray[Any]]) -> onnx.ModelProto:
    """A Loop of `STEPS` iterations over `nodes`, which make `next` from `state` and the number `i`, from `x` on."""
    value = helper.make_tensor_value_info
    condition = [value(name, TensorProto.BOOL, []) for name in ("condition", "same")]
    body = helper.make_graph(
        [helper.make_node("Identity", ["condition"], ["same"], "same"), *nodes],
        "body",
        [value("i", TensorProto.INT64, []), condition[0], value("state", TensorProto.FLOAT, state)],
        [condition[1], value("next", TensorProto.FLOAT, state)],
    )
    initializers = [numpy_helper.from_array(array, name) for name, array in {**constants, "count": np.array(STEPS)}.items()]
    whole = helper.make_node("Loop", ["count", "", "x"], ["y"], "loop", body=body)
    ends = [value(name, TensorProto.FLOAT, state) for name in ("x", "y")]
    graph = helper.make_graph([whole], "looping", ends[:1], ends[1:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def recurrent(rng: np.random.Generator) -> onnx.ModelProto:
    """An Elman cell over a sequence of vectors, one an iteration."""
    weights = {name: rng.standard_normal((64, 64), np.float32) / 8 for name in ("w", "u")}
    nodes = [
        helper.make_node("Gather", ["sequence", "i"], ["row"], "row"),
        helper.make_node("Unsqueeze", ["row", "zero"], ["rows"], "rows"),
        helper.make_node("MatMul", ["rows", "w"], ["new"], "new"),
        helper.make_node("MatMul", ["state", "u"], ["old"], "old"),
        helper.make_node("Add", ["new", "old"], ["sum"], "sum"),
        helper.make_node("Add", ["sum", "bias"], ["total"], "total"),
        helper.make_node("Tanh", ["total"], ["next"], "next"),
    ]
    more = {"sequence": rng.random((STEPS, 64), np.float32), "bias": rng.random(64, np.float32), "zero": np.array([0])}
    return loop(nodes, [1, 64], {**weights, **more})


def tiny() -> onnx.ModelProto:
    """One small product an iteration."""
    nodes = [helper.make_node("MatMul", ["state", "w"], ["p"], "p"), helper.make_node("Relu", ["p"], ["next"], "next")]
    return loop(nodes, [16, 16], {"w": np.eye(16, dtype=np.float32)})


def case(name: str, folder: Path) -> tuple[Path, Arrays]:
    """The file of a model, and inputs."""
    rng = np.random.default_rng(0)
    if name in MODELS:
        return MODELS[name].path, MODELS[name].inputs(rng, 1)
    path = folder / f"{name}.onnx"
    if name == "digits":
        path.write_bytes((files("dovetail_demo") / "data" / "digits.onnx").read_bytes())
        return path, {"image": rng.random((1, 1, 8, 8), np.float32)}
    onnx.save(tiny() if name == "tiny loop" else recurrent(rng), path)
    return path, {"x": rng.random((16, 16) if name == "tiny loop" else (1, 64), np.float32)}


def measure(name: str, device: str, rounds: int, clock: Callable[[], int], folder: Path) -> Row:
    path, inputs = case(name, folder)
    core = dovetail.Core(config=False)
    with core.compile_model(core.read_model(path), device) as compiled:
        on = overhead(compiled, inputs, rounds, clock)
        covered, unnamed = coverage(compiled.create_infer_request().trace(inputs, runs=3))
    return {"model": name, "device": device, **on, "slices %": covered, "unnamed": unnamed}


def overhead(compiled: dovetail.CompiledModel, inputs: Arrays, rounds: int, clock: Callable[[], int]) -> Row:
    """128 calls of each in turn, or 20 ms if that is shorter, so that runs with and without details count as often as they come.

    The order changes with each round: what runs first finds the caches of the one before. The median of the rounds' ratios is not
    moved by what else the machine does.
    """
    requests = []
    for recorded in (nullcontext(), Trace(), Trace(complete=True)):
        with recorded:
            requests.append(compiled.create_infer_request())
    calls = [functools.partial(one.infer, inputs) for one in requests]
    once = min(milliseconds(calls[0]) for _ in range(3))
    for call in calls:
        for _ in range(SETTLED if once < LONG else 3):
            call()
    count = max(1, min(128, int(20 / once)))
    found: list[list[float]] = [[], [], []]
    for number in range(rounds):
        for index in ((number + step) % 3 for step in range(3)):
            began = clock()
            for _ in range(count):
                calls[index]()
            found[index].append((clock() - began) / count)
    off, on, complete = found
    return {
        "off us": median(off) / 1e3,
        "on us": median(on) / 1e3,
        "on %": 100 * (median([after / before for before, after in zip(off, on, strict=True)]) - 1),
        "complete %": 100 * (median([after / before for before, after in zip(off, complete, strict=True)]) - 1),
    }


def coverage(trace: Trace) -> tuple[float, int]:
    """The sum of the slices of the last run, in percent of its time, and the slices of kernels without nodes."""
    found = [one for one in events(trace) if one["ph"] == "X"]
    run = [one for one in found if one["cat"] == "request"][-1]
    inside = [
        one for one in found
        if one["cat"] in LEAVES and (one["pid"], one["tid"]) == (run["pid"], run["tid"])
        and run["ts"] <= one["ts"] and one["ts"] + one["dur"] <= run["ts"] + run["dur"] + 1e-3
    ]  # fmt: skip
    unnamed = sum(1 for one in found if one["cat"] == "kernel" and not one["args"].get("nodes"))
    return 100 * sum(one["dur"] for one in inside) / run["dur"], unnamed


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", action="append", help="repeatable; NUMPY, ONEDNN and OPENCL by default")
    options.add_argument("--only", action="append", choices=CASES, help="repeatable; all by default")
    options.add_argument("--rounds", type=int, default=31)
    options.add_argument("--cpu", action="store_true", help="the CPU time of the process")
    arguments = options.parse_args()
    clock = time.process_time_ns if arguments.cpu else time.perf_counter_ns
    limit_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            measure(name, device, arguments.rounds, clock, Path(folder))
            for name in arguments.only or CASES
            for device in arguments.device or ("NUMPY", "ONEDNN", "OPENCL")
        ]
    emit(arguments.json, rows, {"goals": GOAL})
    return 0


if __name__ == "__main__":
    sys.exit(main())
