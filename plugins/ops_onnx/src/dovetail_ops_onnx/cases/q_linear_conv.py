"""Cases of QLinearConv: exact integer sums, scaled in float64 element by element with Python's rounding."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases.conv_integer import whole_convolution
from dovetail_ops_onnx.q_linear_conv import QLinearConv

__all__ = ["cases", "scaled"]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Types, scales for each channel, zero points at the ends with padding, halves to even, saturation, groups, batch 0."""
    x, w = rng.integers(0, 256, (2, 5, 6, 7), np.uint8), rng.integers(-128, 128, (3, 5, 3, 3), np.int8)
    sx, sw, sy = np.array(0.02, np.float32), np.array(0.013, np.float32), np.array(0.61, np.float32)
    bias = rng.integers(-20000, 20000, (3,), np.int32)
    for zx, zy in ((0, 0), (255, 128), (117, 255)):
        zero, target = np.array(zx, np.uint8), np.array(zy, np.uint8)
        total = whole_convolution(x, w, zero, begin=(1, 1))[:, :, :6, :7] + bias.reshape(-1, 1, 1)
        inputs: tuple[NDArray[Any], ...] = (x, sx, zero, w, sw, np.array(0, np.int8), sy, target, bias)
        want = scaled(total, float(sx) * float(sw) / float(sy), target)
        yield Case(f"zero_points_{zx}_{zy}", QLinearConv(pads=(1, 1, 1, 1)), inputs, (want,))
    scales = rng.uniform(0.001, 0.02, 3).astype(np.float32)
    total = whole_convolution(x, w, 7, strides=(2, 2))[:, :, :2, :3]
    factors = float(sx) * scales.astype(np.float64).reshape(-1, 1, 1) / float(sy)
    target = np.array(-100, np.int8)
    inputs = (x, sx, np.array(7, np.uint8), w, scales, np.zeros(3, np.int8), sy, target)
    yield Case("scale_of_each_channel_int8", QLinearConv(strides=(2, 2)), inputs, (scaled(total, factors, target),))
    halves, one = np.array([[[1, 3, 5, 7, -5]]], np.int8), np.ones((1, 1, 1), np.int8)
    unit, half, zero = np.array(1, np.float32), np.array(0.5, np.float32), np.array(0, np.int8)
    want = np.array([[[0, 2, 2, 4, -2]]], np.int8)
    yield Case("halves_to_even", QLinearConv(), (halves, half, zero, one, unit, zero, unit, zero), (want,))
    x, w = rng.integers(-128, 128, (1, 7, 5, 5), np.int8), rng.integers(0, 256, (7, 1, 3, 3), np.uint8)
    zero, own, target = np.array(-128, np.int8), np.array(131, np.uint8), np.array(9, np.uint8)
    total = whole_convolution(x, w, zero, own, begin=(1, 1), group=7)[:, :, :5, :5]
    inputs = (x, sx, zero, w, sw, own, sy, target)
    op = QLinearConv(group=7, pads=(1, 1, 1, 1))
    yield Case("depthwise_uint8_weights", op, inputs, (scaled(total, float(sx) * float(sw) / float(sy), target),))
    yield Case("batch_0", op, (x[:0], *inputs[1:]), (np.zeros((0, 7, 5, 5), np.uint8),))


def scaled(total: NDArray[Any], factor: NDArray[Any] | float, zero: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers times `factor`, rounded half to even, plus the zero point, within its type."""
    limits, factors, y = np.iinfo(zero.dtype), np.broadcast_to(factor, total.shape), np.zeros(total.shape, zero.dtype)
    for at in np.ndindex(*total.shape):
        y[at] = min(max(round(int(total[at]) * float(factors[at])) + int(zero), limits.min), limits.max)
    return y
