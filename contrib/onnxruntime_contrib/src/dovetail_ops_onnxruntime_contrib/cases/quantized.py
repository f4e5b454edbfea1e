"""Cases of the operators on bytes: floats in between, rounded half to even."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.cases._bytes import OUT, SCALE, stored
from dovetail_ops_onnxruntime_contrib.quantized import DequantizeLinear, QLinearAdd, QLinearMul, QuantizeLinear

Array = NDArray[Any]


def quantize_linear(rng: np.random.Generator) -> Iterator[Case]:
    """One scale, a scale for each channel."""
    x = (rng.integers(-40, 40, (2, 3, 5)) / 8).astype(np.float32)
    yield Case("one_scale", QuantizeLinear(), (x, OUT, np.array(7, np.uint8)), (stored(x, 7, np.uint8),))
    scales, zeros = np.array([0.25, 0.5, 1], np.float32), np.array([1, -2, 3], np.int8)
    want = np.rint(x / scales[:, None]) + zeros[:, None]
    yield Case("channels", QuantizeLinear(), (x, scales, zeros), (want.astype(np.int8),))


def dequantize_linear(rng: np.random.Generator) -> Iterator[Case]:
    """One scale, a scale for each channel, no zero point."""
    x = rng.integers(-128, 128, (2, 3, 5)).astype(np.int8)
    want = ((x.astype(np.float64) - 7) * 0.5).astype(np.float32)
    yield Case("one_scale", DequantizeLinear(), (x, SCALE, np.array(7, np.int8)), (want,))
    scales = np.array([0.25, 0.5, 1], np.float32)
    yield Case("channels", DequantizeLinear(axis=-2), (x, scales), (x.astype(np.float32) * scales[:, None],))


def q_linear_add(rng: np.random.Generator) -> Iterator[Case]:
    """Both types, broadcasting, saturation, no zero points."""
    yield from _binary(rng, QLinearAdd(), np.add)


def q_linear_mul(rng: np.random.Generator) -> Iterator[Case]:
    """Both types, broadcasting, saturation, no zero points."""
    yield from _binary(rng, QLinearMul(), np.multiply)


def _binary(rng: np.random.Generator, op: Any, compute: Any) -> Iterator[Case]:
    for dtype in (np.uint8, np.int8):
        limits = np.iinfo(dtype)
        a, b = (rng.integers(limits.min, limits.max + 1, shape).astype(dtype) for shape in ((3, 1, 7), (5, 7)))
        zeros = [np.array(z, dtype) for z in (7, 3, 11)]
        want = stored(compute((a.astype(np.float64) - 7) * 0.5, (b.astype(np.float64) - 3) * 0.5), 11, dtype)
        inputs: tuple[Array | None, ...] = (a, SCALE, zeros[0], b, SCALE, zeros[1], OUT, zeros[2])
        yield Case(np.dtype(dtype).name, op, inputs, (want,), constants=(1, 2, 4, 5, 6, 7))
        want = stored(compute(a.astype(np.float64) * 0.5, b.astype(np.float64) * 0.5), 0, dtype)
        inputs = (a, SCALE, None, b, SCALE, None, OUT)
        yield Case(f"{np.dtype(dtype).name}_plain", op, inputs, (want,), constants=(1, 4, 6))
