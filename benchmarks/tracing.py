"""The cost of a trace, and whether its slices add up to the time of a run.

`python benchmarks/tracing.py [-d NUMPY -d ONEDNN -d OPENCL] [--only digits] [--rounds 31] [--json]`. Two requests of one
compiled model run in turn, one of them recorded: `on %` is what the median of their ratios, round by round, is above one.
`slices %` is the sum of the slices of a recorded run, of dovetail's own time between them too, over its wall time, and
`unnamed` counts slices of kernels that name no node of the file. `digits` is the network of dovetail-demo, `loop` a Loop of 50
iterations over two small nodes; the others need `python benchmarks/models.py export`.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnx
from _common import MODELS, Arrays, Row, emit, limit_threads, median, milliseconds, parser
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.runtime import Trace
from dovetail_views.trace_file import events

GOAL = {"on %": 5.0, "slices %": 2.0}
CASES = ("digits", "loop", "resnet50", "minilm")
LEAVES = ("kernel", "transfer", "enqueue", "wait", "overhead")


def write_loop(path: Path) -> None:
    """A Loop whose body is a product and a Relu of 16 x 16."""
    value, boolean = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT), TensorProto.BOOL
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["condition"], ["same"], "same"),
            helper.make_node("MatMul", ["state", "w"], ["product"], "product"),
            helper.make_node("Relu", ["product"], ["next"], "positive"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("condition", boolean, []),
            value("state", shape=[16, 16]),
        ],
        [helper.make_tensor_value_info("same", boolean, []), value("next", shape=[16, 16])],
    )
    nodes = [helper.make_node("Loop", ["count", "", "x"], ["y"], "loop", body=body)]
    constants = [
        numpy_helper.from_array(np.eye(16, dtype=np.float32), "w"),
        numpy_helper.from_array(np.array(50, np.int64), "count"),
    ]
    graph = helper.make_graph(nodes, "looping", [value("x", shape=[16, 16])], [value("y", shape=[16, 16])], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def case(name: str, folder: Path) -> tuple[Path, Arrays]:
    """The file of a model, and inputs."""
    rng = np.random.default_rng(0)
    if name in MODELS:
        return MODELS[name].path, MODELS[name].inputs(rng, 1)
    path = folder / f"{name}.onnx"
    if name == "digits":
        path.write_bytes((files("dovetail_demo") / "data" / "digits.onnx").read_bytes())
        return path, {"image": rng.random((1, 1, 8, 8), np.float32)}
    write_loop(path)
    return path, {"x": rng.random((16, 16), np.float32)}


def measure(name: str, device: str, rounds: int, folder: Path) -> Row:
    path, inputs = case(name, folder)
    core = dovetail.Core(config=False)
    with core.compile_model(core.read_model(path), device) as compiled:
        plain, trace = compiled.create_infer_request(), Trace()
        with trace:
            recorded = compiled.create_infer_request()
        on = overhead(functools.partial(plain.infer, inputs), functools.partial(recorded.infer, inputs), rounds)
        covered, unnamed = coverage(recorded.trace(inputs, runs=3))
        recorded.close()
    return {"model": name, "device": device, **on, "slices %": covered, "unnamed": unnamed}


def overhead(plain: Callable[[], object], recorded: Callable[[], object], rounds: int) -> Row:
    """Both in turn, in rounds of about 20 ms; the median of the rounds' ratios is not moved by what else the machine does."""
    plain(), recorded()
    repeats = max(1, min(200, int(20 / max(milliseconds(plain), 1e-3))))
    off, on = [], []
    for _ in range(rounds):
        pairs = [(milliseconds(plain), milliseconds(recorded)) for _ in range(repeats)]
        off.append(median([before for before, _ in pairs]))
        on.append(median([after for _, after in pairs]))
    ratios = [after / before for before, after in zip(off, on, strict=True)]
    return {"off us": 1e3 * median(off), "on us": 1e3 * median(on), "on %": 100 * (median(ratios) - 1)}


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
    arguments = options.parse_args()
    limit_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            measure(name, device, arguments.rounds, Path(folder))
            for name in arguments.only or CASES
            for device in arguments.device or ("NUMPY", "ONEDNN", "OPENCL")
        ]
    emit(arguments.json, rows, {"goals": GOAL})
    return 0


if __name__ == "__main__":
    sys.exit(main())
