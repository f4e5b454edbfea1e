"""Cases of QuantizeLinear: element by element with exact rounding, and by hand."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph import DType
from dovetail.testing.case import Case
from dovetail_ops_onnx.quantize_linear import QuantizeLinear


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Whole tensor, each axis, blocks, halves to even, saturation, chosen types, float16, batch 0."""
    x = (rng.standard_normal((2, 3, 5)) * 40).astype(np.float32)
    scale, zero = np.array(0.5, np.float32), np.array(100, np.uint8)
    yield Case("whole_tensor", QuantizeLinear(), (x, scale, zero), (_quantized(x, scale, zero),))
    yield Case("no_zero_point", QuantizeLinear(), (x, scale), (_quantized(x, scale, np.zeros((), np.uint8)),))
    for axis in (0, 1, -1):
        scales = rng.uniform(0.1, 2, (x.shape[axis],)).astype(np.float32)
        zeros = rng.integers(-20, 20, (x.shape[axis],)).astype(np.int8)
        shape = [-1 if a == axis % 3 else 1 for a in range(3)]
        want = _quantized(x, scales.reshape(shape), zeros.reshape(shape))
        yield Case(f"axis_{axis}", QuantizeLinear(axis=axis), (x, scales, zeros), (want,))
    blocks = rng.uniform(0.1, 2, (2, 3, 3)).astype(np.float32)
    want = _quantized(x, np.repeat(blocks, 2, axis=2)[..., :5], np.zeros((), np.int16))
    op = QuantizeLinear(axis=2, block_size=2, output_dtype=DType.INT16.onnx)
    yield Case("blocks_int16", op, (x, blocks), (want,))
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 300, -300, np.inf, -np.inf], np.float32)
    one = np.ones((), np.float32)
    want = np.array([0, 2, 2, 0, -2, 127, -128, 127, -128], np.int8)
    yield Case("halves_to_even_and_saturation", QuantizeLinear(), (halves, one, np.zeros((), np.int8)), (want,))
    third = np.array([1000, -7], np.int32)
    yield Case("int32", QuantizeLinear(), (third, np.array(2, np.float32)), (np.array([255, 0], np.uint8),))
    half = np.array([[3, -3, 10]], np.float16)
    want = np.array([[31, 0, 101]], np.uint8)
    # 10 / 0.1 is 100 in float16, whose 0.1 is 0.09998 and whose step at 100 is 1/16: 100.0 after rounding.
    yield Case("float16", QuantizeLinear(), (half, np.array(0.1, np.float16), np.array(1, np.uint8)), (want,))
    yield Case("batch_0", QuantizeLinear(), (x[:0], scale, zero), (np.zeros((0, 3, 5), np.uint8),))


def _quantized(x: NDArray[Any], scale: NDArray[Any], zero: NDArray[Any]) -> NDArray[Any]:
    limits = np.iinfo(zero.dtype)
    scales, zeros, y = np.broadcast_to(scale, x.shape), np.broadcast_to(zero, x.shape), np.zeros(x.shape, zero.dtype)
    for at in np.ndindex(*x.shape):
        y[at] = min(max(round(float(x[at] / scales[at])) + int(zeros[at]), limits.min), limits.max)
    return y
