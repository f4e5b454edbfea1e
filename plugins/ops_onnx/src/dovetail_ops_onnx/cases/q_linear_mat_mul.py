"""Cases of QLinearMatMul: exact integer sums, scaled in float64 element by element with Python's rounding."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases.mat_mul_integer import whole_product
from dovetail_ops_onnx.cases.q_linear_conv import scaled
from dovetail_ops_onnx.q_linear_mat_mul import QLinearMatMul


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Types, zero points at the ends, by row and column, batches, halves to even, saturation, float16 scales, batch 0."""
    a, b = rng.integers(0, 256, (3, 17), np.uint8), rng.integers(-128, 128, (17, 5), np.int8)
    sa, sb, sy = np.array(0.02, np.float32), np.array(0.013, np.float32), np.array(0.31, np.float32)
    factor = float(sa) * float(sb) / float(sy)
    zb = np.array(0, np.int8)
    for za, zy in ((0, 0), (255, 128), (117, 255)):
        zero, target = np.array(za, np.uint8), np.array(zy, np.uint8)
        want = scaled(whole_product(a, b, zero, zb), factor, target)
        yield Case(f"zero_points_{za}_{zy}", QLinearMatMul(), (a, sa, zero, b, sb, zb, sy, target), (want,))
    zero, target = np.array(100, np.uint8), np.array(-7, np.int8)
    scales, zeros = rng.uniform(0.001, 0.02, 5).astype(np.float32), rng.integers(-9, 9, 5).astype(np.int8)
    want = scaled(whole_product(a, b, zero, zeros), float(sa) * scales.astype(np.float64) / float(sy), target)
    yield Case("by_column_int8", QLinearMatMul(), (a, sa, zero, b, scales, zeros, sy, target), (want,))
    rows, zeros = rng.uniform(0.001, 0.02, 3).astype(np.float32), rng.integers(90, 120, 3).astype(np.uint8)
    factors = rows.astype(np.float64).reshape(3, 1) * float(sb) / float(sy)
    want = scaled(whole_product(a, b, zeros.reshape(3, 1), zb), factors, target)
    yield Case("by_row", QLinearMatMul(), (a, rows, zeros, b, sb, zb, sy, target), (want,))
    half, unit, none = np.array(0.5, np.float32), np.array(1, np.float32), np.array(0, np.int8)
    x = np.array([[1, 3, 5, -3]], np.int8).T
    want = np.array([[0], [2], [2], [-2]], np.int8)
    yield Case("halves_to_even", QLinearMatMul(), (x, half, none, np.ones((1, 1), np.int8), unit, none, unit, none), (want,))
    batch = rng.integers(-128, 128, (2, 3, 17), np.int8)
    edge = np.array(-128, np.int8)
    want = scaled(whole_product(batch, b, edge, zb), factor, target)
    inputs: tuple[NDArray[Any], ...] = (batch, sa, edge, b, sb, zb, sy, target)
    yield Case("batch", QLinearMatMul(), inputs, (want,))
    yield Case("batch_0", QLinearMatMul(), (batch[:0], *inputs[1:]), (np.zeros((0, 3, 5), np.int8),))
    few = np.array([[2, 4]], np.uint8)
    small = tuple(np.array(v, np.float16) for v in (0.5, 0.25, 0.125))
    inputs = (
        few,
        small[0],
        np.array(0, np.uint8),
        np.array([[3], [5]], np.int8),
        small[1],
        none,
        small[2],
        np.array(1, np.uint8),
    )
    yield Case("float16_scales", QLinearMatMul(), inputs, (np.array([[27]], np.uint8),))
