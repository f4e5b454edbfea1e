"""Whether Winograd's algorithm could pay on an OPENCL device: ResNet-50's 3x3 convolutions against what it takes at least.

`python benchmarks/opencl_winograd.py [-d OPENCL.0] [--batch 1 --batch 8]` tunes and times, by device events in microseconds, the
convolution as it runs, and the parts of F(2x2, 3x3) (Lavin and Gray, 2016): the 16 products of weights [maps, channels] and tiles
[channels, tiles], and the two transforms, which are replaced by elementwise kernels with as much traffic and no arithmetic.
`least` is the sum of these parts. F(4x4, 3x3) has 36 products of a quarter of the tiles. Most of the time goes into compiling
candidates of the tuner, `--candidates` for each of 12 problems a batch.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np
from _common import Arrays, emit, parser
from opencl_profile import Profiled

import dovetail
from dovetail.graph import GraphBuilder
from dovetail_gpu_opencl import executable, tuner
from dovetail_ops_onnx import find

SHAPES = ((64, 56), (128, 28), (256, 14), (512, 7))
"""Channels, which are as many as maps, and the side of the image."""


def device_time(core: dovetail.Core, device: str, name: str, shape: tuple[int, ...], weights: Any, **attributes: Any) -> float:
    """Microseconds of an operator on an input, with weights behind or before it."""
    g = GraphBuilder()
    x = g.input("x", "float32", shape)
    given = [x] if weights is None else [x, g.constant(weights)] if name == "Conv" else [g.constant(weights), x]
    op = find(name, 17)
    assert op is not None
    compiled = core.compile_model(g.model([g.node(op(**attributes), *given)]), device, {"TUNE": True})
    inputs: Arrays = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    runs = []
    for _ in range(30):
        compiled(inputs)
        spans = Profiled.latest.spans
        runs.append((spans[-1][1] - spans[0][0]) / 1e3)
    return float(np.median(runs))


def main() -> int:
    options = parser(__doc__)
    options.add_argument("-d", "--device", default="OPENCL.0", help="the dovetail device")
    options.add_argument("--batch", type=int, action="append", help="repeatable; 1 and 8 by default")
    options.add_argument("--candidates", type=int, default=8, help="tilings that the tuner tries")
    arguments = options.parse_args()
    tuner.candidates = functools.partial(tuner.candidates, limit=arguments.candidates)
    executable.InOrderRequest = Profiled
    core, rows = dovetail.Core(), []
    rng = np.random.default_rng(1)
    for batch in arguments.batch or (1, 8):
        for channels, side in SHAPES:
            image = (batch, channels, side, side)
            weights = rng.standard_normal((channels, channels, 3, 3)).astype(np.float32)
            conv = device_time(core, arguments.device, "Conv", image, weights, pads=(1, 1, 1, 1))
            row = {"batch": batch, "channels": channels, "side": side, "convolution": conv}
            for tile in (2, 4):
                count, tiles = (tile + 2) ** 2, batch * (-(-side // tile)) ** 2
                factors = rng.standard_normal((count, channels, channels)).astype(np.float32)
                product = device_time(core, arguments.device, "MatMul", (count, channels, tiles), factors)
                moved = (count * channels * tiles + batch * channels * side * side) // 2
                transform = device_time(core, arguments.device, "Relu", (moved,), None)
                row |= {f"products {tile}x{tile}": product, f"transform {tile}x{tile}": transform}
                row[f"least {tile}x{tile}"] = product + 2 * transform
            rows.append(row)
    emit(arguments.json, rows, {})
    return 0


if __name__ == "__main__":
    sys.exit(main())
