"""The kinds of queue of OPENCL compared on a model of independent branches.

`python benchmarks/branches.py [-d OPENCL.0] [--branches 4] [--depth 8] [--sides 7 28 112] [--json]`. Each branch is a chain of
3x3 convolutions with 16 channels on images of `side` x `side`, all read the model's input, and their results are added. A
side of 7 is little work for a device and a side of 112 much. Rounds are interleaved; `x IN_ORDER` is the time against that of
one in-order queue, and below 1 it is faster. Each row is checked to give the same numbers as IN_ORDER.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from _common import Row, emit, interleaved, limit_threads, median, parser
from _runners import Dovetail
from onnx import TensorProto, helper, numpy_helper

CHANNELS = 16
QUEUES = ("IN_ORDER", "OUT_OF_ORDER", "MULTI")


def write_model(path: Path, branches: int, depth: int, side: int) -> None:
    """An ONNX file: `branches` chains of `depth` convolutions from one input, and their sum."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    for branch in range(branches):
        last = "input"
        for step in range(depth):
            name = f"{branch}_{step}"
            kernel = (rng.standard_normal((CHANNELS, CHANNELS, 3, 3)) / 12).astype(np.float32)
            weights.append(numpy_helper.from_array(kernel, f"w{name}"))
            nodes.append(helper.make_node("Conv", [last, f"w{name}"], [f"y{name}"], f"conv{name}", pads=[1, 1, 1, 1]))
            last = f"y{name}"
    nodes.append(helper.make_node("Sum", [f"y{branch}_{depth - 1}" for branch in range(branches)], ["output"], "sum"))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, CHANNELS, side, side]) for n in ("input", "output")]
    graph = helper.make_graph(nodes, "branches", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def compare(device: str, branches: int, depth: int, side: int, rounds: int, folder: Path) -> list[Row]:
    """Medians of each kind of queue."""
    path = folder / f"{side}.onnx"
    write_model(path, branches, depth, side)
    x = {"input": np.random.default_rng(1).standard_normal((1, CHANNELS, side, side)).astype(np.float32)}
    runners = {queue: Dovetail(path, device, {"QUEUE": queue}) for queue in QUEUES}
    expected = runners["IN_ORDER"].run(x)["output"]
    for runner in runners.values():
        np.testing.assert_array_equal(runner.run(x)["output"], expected)
    calls = {queue: functools.partial(runner.infer, x) for queue, runner in runners.items()}
    found = {queue: median(values) for queue, values in interleaved(calls, rounds, budget_ms=50.0).items()}
    return [
        {"side": side, "queue": queue, "nodes": runners[queue].nodes(), "ms": ms, "x IN_ORDER": ms / found["IN_ORDER"]}
        for queue, ms in found.items()
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", default="OPENCL.0")
    options.add_argument("--branches", type=int, default=4)
    options.add_argument("--depth", type=int, default=8)
    options.add_argument("--sides", type=int, nargs="+", default=[7, 28, 112])
    options.add_argument("--rounds", type=int, default=15)
    arguments = options.parse_args()
    limit_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            row
            for side in arguments.sides
            for row in compare(arguments.device, arguments.branches, arguments.depth, side, arguments.rounds, Path(folder))
        ]
    emit(arguments.json, rows, {"device": arguments.device, "branches": arguments.branches, "depth": arguments.depth})
    return 0


if __name__ == "__main__":
    sys.exit(main())
