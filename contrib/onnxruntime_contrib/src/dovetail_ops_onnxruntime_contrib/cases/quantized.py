"""Cases of the operators on bytes: floats in between, rounded half to even."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.quantized import (
    DequantizeLinear,
    QLinearAdd,
    QLinearAveragePool,
    QLinearGlobalAveragePool,
    QLinearMul,
    QuantizeLinear,
)

Array = NDArray[Any]

# Powers of two: no float is rounded on the way, and every device finds the same bytes.
_SCALE, _OUT = np.array(0.5, np.float32), np.array(0.25, np.float32)


def _bytes(y: Array, zero: int, dtype: Any) -> Array:
    limits = np.iinfo(dtype)
    return np.asarray(np.clip(np.rint(y / 0.25) + zero, limits.min, limits.max).astype(dtype))


def quantize_linear(rng: np.random.Generator) -> Iterator[Case]:
    """One scale, a scale for each channel."""
    x = (rng.integers(-40, 40, (2, 3, 5)) / 8).astype(np.float32)
    yield Case("one_scale", QuantizeLinear(), (x, _OUT, np.array(7, np.uint8)), (_bytes(x, 7, np.uint8),))
    scales, zeros = np.array([0.25, 0.5, 1], np.float32), np.array([1, -2, 3], np.int8)
    want = np.rint(x / scales[:, None]) + zeros[:, None]
    yield Case("channels", QuantizeLinear(), (x, scales, zeros), (want.astype(np.int8),))


def dequantize_linear(rng: np.random.Generator) -> Iterator[Case]:
    """One scale, a scale for each channel, no zero point."""
    x = rng.integers(-128, 128, (2, 3, 5)).astype(np.int8)
    want = ((x.astype(np.float64) - 7) * 0.5).astype(np.float32)
    yield Case("one_scale", DequantizeLinear(), (x, _SCALE, np.array(7, np.int8)), (want,))
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
        want = _bytes(compute((a.astype(np.float64) - 7) * 0.5, (b.astype(np.float64) - 3) * 0.5), 11, dtype)
        inputs: tuple[Array | None, ...] = (a, _SCALE, zeros[0], b, _SCALE, zeros[1], _OUT, zeros[2])
        yield Case(np.dtype(dtype).name, op, inputs, (want,), constants=(1, 2, 4, 5, 6, 7))
        want = _bytes(compute(a.astype(np.float64) * 0.5, b.astype(np.float64) * 0.5), 0, dtype)
        inputs = (a, _SCALE, None, b, _SCALE, None, _OUT)
        yield Case(f"{np.dtype(dtype).name}_plain", op, inputs, (want,), constants=(1, 4, 6))


def q_linear_average_pool(rng: np.random.Generator) -> Iterator[Case]:
    """Windows of two by two, channels first and last."""
    x = rng.integers(0, 256, (2, 3, 4, 6)).astype(np.uint8)
    floats = (x.astype(np.float64) - 5) * 0.5
    want = _bytes(floats.reshape(2, 3, 2, 2, 3, 2).mean((3, 5)), 9, np.uint8)
    yield from _pools(QLinearAveragePool, x, want, kernel_shape=(2, 2), strides=(2, 2))


def q_linear_global_average_pool(rng: np.random.Generator) -> Iterator[Case]:
    """Channels first and last."""
    x = rng.integers(0, 256, (2, 3, 4, 4)).astype(np.uint8)
    want = _bytes(((x.astype(np.float64) - 5) * 0.5).mean((2, 3), keepdims=True), 9, np.uint8)
    yield from _pools(QLinearGlobalAveragePool, x, want)


def _pools(cls: Any, x: Array, want: Array, **attributes: Any) -> Iterator[Case]:
    end = (_SCALE, np.array(5, np.uint8), _OUT, np.array(9, np.uint8))
    yield Case("first", cls(**attributes), (x, *end), (want,), constants=(1, 2, 3, 4))
    last = tuple(np.ascontiguousarray(np.moveaxis(v, 1, -1)) for v in (x, want))
    yield Case("last", cls(channels_last=True, **attributes), (last[0], *end), (last[1],), constants=(1, 2, 3, 4))
