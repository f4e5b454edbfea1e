"""The gain of fusion: conv + bias + relu and conv + sum + relu at the sizes of ResNet-50, fused against one node each.

`python benchmarks/post_ops.py [-d ONEDNN -d OPENCL -d NUMPY] [--blocks 3] [--json]`. A model is a row of blocks that read one
another; the sum adds what the block reads. The same model runs with FUSION True and False, in interleaved rounds, f32, batch
1, two threads. `gain` is the median of the unfused one over that of the fused one; `nodes` are those that run, reorders
included. Both are compared before they are timed.
"""

from __future__ import annotations

import functools
import sys

import numpy as np
from _common import Row, emit, geometric_mean, interleaved, limit_threads, median, parser

import dovetail
from dovetail.graph import Model
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.relu import Relu

SIZES = ((64, 56, 3), (256, 56, 1), (128, 28, 3), (512, 28, 1), (256, 14, 3), (1024, 14, 1), (512, 7, 3))
"""Channels, side and kernel of the convolutions."""
KINDS = ("bias", "sum")


def model(kind: str, channels: int, side: int, kernel: int, blocks: int) -> Model:
    """Blocks of conv + bias + relu (`bias`) or conv + sum + relu (`sum`) on [1, channels, side, side]."""
    rng = np.random.default_rng(0)
    g = dovetail.GraphBuilder()
    value = g.input("x", "float32", (1, channels, side, side))
    for _ in range(blocks):
        weights = rng.standard_normal((channels, channels, kernel, kernel)) / np.sqrt(channels * kernel * kernel)
        y = g.node(Conv(pads=(kernel // 2,) * 4), value, g.constant(weights, "float32"))
        other = g.constant(rng.standard_normal((channels, 1, 1)), "float32") if kind == "bias" else value
        value = g.node(Relu(), g.node(Add(), y, other))
    return g.model([value])


def measure(core: dovetail.Core, device: str, kind: str, size: tuple[int, int, int], blocks: int, rounds: int) -> Row:
    """The medians of one kind of block at one size on one device."""
    built = model(kind, *size, blocks)
    x = np.random.default_rng(1).standard_normal((1, size[0], size[1], size[1])).astype(np.float32)
    fused, apart = (core.compile_model(built, device, {"FUSION": fusion}) for fusion in (True, False))
    got, want = (compiled({"x": x})[0].copy() for compiled in (fused, apart))
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
    samples = interleaved({"fused": functools.partial(fused, {"x": x}), "apart": functools.partial(apart, {"x": x})}, rounds)
    found = {name: median(values) for name, values in samples.items()}
    nodes = [len(compiled.report().nodes) for compiled in (fused, apart)]
    for compiled in (fused, apart):
        compiled.close()
    return {
        "device": device,
        "block": f"conv + {kind} + relu",
        "size": f"{size[0]} x {size[1]} x {size[1]}, {size[2]}x{size[2]}",
        "nodes": f"{nodes[0]} / {nodes[1]}",
        "fused ms": found["fused"],
        "apart ms": found["apart"],
        "gain": found["apart"] / found["fused"],
    }


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", action="append", help="repeatable; ONEDNN, OPENCL and NUMPY by default")
    options.add_argument("--blocks", type=int, default=3)
    options.add_argument("--rounds", type=int, default=7)
    arguments = options.parse_args()
    limit_threads(2)
    devices = arguments.device or ["ONEDNN", "OPENCL", "NUMPY"]
    with dovetail.Core() as core:
        rows = [
            measure(core, device, kind, size, arguments.blocks, arguments.rounds)
            for device in devices
            for kind in KINDS
            for size in SIZES
        ]
    gains = {d: geometric_mean([row["gain"] for row in rows if row["device"] == d]) for d in devices}
    emit(arguments.json, rows, {f"geometric mean of the gain on {device}": gain for device, gain in gains.items()})
    return 0


if __name__ == "__main__":
    sys.exit(main())
