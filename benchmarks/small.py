"""The time of a run of small networks, where calls and threads weigh more than arithmetic: microseconds, beside onnxruntime.

    python benchmarks/small.py -d ONEDNN -d NUMPY
    python benchmarks/small.py -d ONEDNN --busy 1

Networks with seeded random weights: ten tiny nodes, a classifier of digits, a keyword spotter. `session us` is a run through
dovetail-onnxruntime-api. `threads` is how many the plan uses, where the device reports it. With `--busy` so many other processes
compute meanwhile. Each device is measured in a process of its own, in interleaved rounds.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from _common import Row, emit, error_figures, geometric_mean, interleaved, limit_threads, median, parser
from onnx import NodeProto, TensorProto, helper, numpy_helper


@dataclass
class Net:
    """A network under construction: nodes one after the other, with weights in float32."""

    shape: tuple[int, ...]
    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def add(self, op: str, *shapes: tuple[int, ...], **attributes: Any) -> Net:
        """A node that reads the last value and weights of these shapes."""
        names = [f"w{len(self.weights) + i}" for i in range(len(shapes))]
        for name, shape in zip(names, shapes, strict=True):
            scale = np.sqrt(np.prod(shape[1:]) or 1)
            self.weights.append(numpy_helper.from_array((self.rng.standard_normal(shape) / scale).astype(np.float32), name))
        before = f"v{len(self.nodes)}" if self.nodes else "x"
        self.nodes.append(helper.make_node(op, [before, *names], [f"v{len(self.nodes) + 1}"], **attributes))
        return self

    def content(self) -> bytes:
        """The ONNX file."""
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", self.shape), (f"v{len(self.nodes)}", None))
        ]
        graph = helper.make_graph(self.nodes, "small", ends[:1], ends[1:], self.weights)
        model: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
        return model


def ten_nodes() -> Net:
    """Products with activations, of one row."""
    net = Net((1, 16))
    for _ in range(5):
        net.add("Gemm", (16, 16), (16,)).add("Tanh")
    return net


def digits() -> Net:
    """Two convolutions with pooling and two products, for images of 28 x 28."""
    net = Net((1, 1, 28, 28)).add("Conv", (8, 1, 3, 3), (8,), pads=[1, 1, 1, 1]).add("Relu")
    net.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2]).add("Conv", (16, 8, 3, 3), (16,), pads=[1, 1, 1, 1]).add("Relu")
    net.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2]).add("Flatten").add("Gemm", (784, 64), (64,)).add("Relu")
    return net.add("Gemm", (64, 10), (10,)).add("Softmax", axis=1)


def keywords() -> Net:
    """Depthwise-separable convolutions over 49 frames of 10 coefficients, as in keyword spotters (arXiv:1711.07128)."""
    net = Net((1, 1, 49, 10)).add("Conv", (64, 1, 10, 4), (64,), strides=[2, 2], pads=[4, 1, 5, 2]).add("Relu")
    for _ in range(4):
        net.add("Conv", (64, 1, 3, 3), (64,), pads=[1, 1, 1, 1], group=64).add("Relu").add("Conv", (64, 64, 1, 1), (64,)).add(
            "Relu"
        )
    return net.add("GlobalAveragePool").add("Flatten").add("Gemm", (64, 12), (12,)).add("Softmax", axis=1)


NETWORKS: dict[str, Callable[[], Net]] = {"ten nodes": ten_nodes, "digits": digits, "keywords": keywords}


def _row(name: str, device: str, threads: int, rounds: int) -> Row:
    import onnxruntime

    import dovetail
    import dovetail_onnxruntime

    net = NETWORKS[name]()
    content, feed = net.content(), {"x": np.random.default_rng(1).standard_normal(net.shape).astype(np.float32)}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    theirs = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    core = dovetail.Core()
    compiled = core.compile_model(core.read_model(content, "onnx"), device)
    dovetail_onnxruntime.use_device(device)
    ours = dovetail_onnxruntime.InferenceSession(content)
    (expected,), (found,) = theirs.run(None, feed), ours.run(None, feed)
    calls = {
        "ours": functools.partial(compiled, feed),
        "session": functools.partial(ours.run, None, feed),
        "onnxruntime": functools.partial(theirs.run, None, feed),
    }
    us = {label: 1e3 * median(values) for label, values in interleaved(calls, rounds, budget_ms=20.0).items()}
    (step,) = compiled.plan((net.shape,)).steps
    return {
        "network": name,
        "device": device,
        "nodes": len(compiled.report().nodes),
        "threads": getattr(step.executable, "shared_by", None),
        "difference": error_figures(found, expected)[1],
        "dovetail us": us["ours"],
        "session us": us["session"],
        "onnxruntime us": us["onnxruntime"],
        "ratio": us["ours"] / us["onnxruntime"],
        "session ratio": us["session"] / us["onnxruntime"],
    }


def _busy() -> None:
    while True:
        sum(range(10_000))


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", action="append", help="a device of dovetail; repeatable; default ONEDNN")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--busy", type=int, default=0, metavar="COUNT", help="processes that compute meanwhile")
    options.add_argument("--worker", action="store_true", help="measure one device in this process, for the program itself")
    arguments = options.parse_args()
    limit_threads(arguments.threads)
    if arguments.worker:
        (device,) = arguments.device
        emit(True, [_row(name, device, arguments.threads, arguments.rounds) for name in NETWORKS], {})
        return 0
    others = [multiprocessing.Process(target=_busy, daemon=True) for _ in range(arguments.busy)]
    for other in others:
        other.start()
    rows: list[Row] = []
    for device in arguments.device or ["ONEDNN"]:
        command = [sys.executable, __file__, "--worker", "-d", device, "--rounds", str(arguments.rounds)]
        command += ["--threads", str(arguments.threads)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows += json.loads(done.stdout)["rows"]
    for other in others:
        other.kill()
    means = {
        f"geometric mean of the ratios, {device}": geometric_mean([row["ratio"] for row in rows if row["device"] == device])
        for device in dict.fromkeys(row["device"] for row in rows)
    }
    emit(arguments.json, rows, {**means, "busy processes": arguments.busy})
    return 1 if any(row["difference"] > 1e-4 for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
