"""Cases of LayerNormalization: row by row in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.layer_normalization import LayerNormalization


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Each axis, with and without B and statistics, scale that broadcasts, a large offset, float16, batch 0."""
    x = (rng.standard_normal((2, 3, 5)) * 3 + 1).astype(np.float32)
    for axis in (-1, 1, 0):
        shape = x.shape[axis:] if axis >= 0 else x.shape[-1:]
        scale, b = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
        yield Case(f"axis_{axis}", LayerNormalization(axis=axis), (x, scale, b), _rows(x, scale, b, axis % 3, 1e-5))
    scale = rng.standard_normal(5).astype(np.float32)
    yield Case("no_bias", LayerNormalization(epsilon=0.1), (x, scale), _rows(x, scale, None, 2, 0.1)[:1])
    one = np.array([2], np.float32)
    yield Case("scale_broadcasts", LayerNormalization(axis=1), (x, one, one), _rows(x, one, one, 1, 1e-5)[:1])
    far = (rng.standard_normal((4, 33)) + 1000).astype(np.float32)
    ones = np.ones(33, np.float32)
    yield Case("far_from_zero", LayerNormalization(), (far, ones), _rows(far, ones, None, 1, 1e-5)[:1], rtol=1e-3, atol=1e-3)
    half = x.astype(np.float16)
    y, mean, inverse = _rows(half, scale, None, 2, 1e-5)
    statistics = (mean.astype(np.float32), inverse.astype(np.float32))
    yield Case("float16", LayerNormalization(), (half, scale.astype(np.float16)), (y, *statistics), rtol=3e-3, atol=3e-3)
    yield Case("batch_0", LayerNormalization(), (x[:0], scale), (x[:0].copy(),))


def _rows(x: NDArray[Any], scale: NDArray[Any], b: NDArray[Any] | None, axis: int, epsilon: float) -> tuple[NDArray[Any], ...]:
    y = np.zeros(x.shape)
    mean, inverse = (np.zeros((*x.shape[:axis], *(1,) * (x.ndim - axis))) for _ in range(2))
    for row in np.ndindex(*x.shape[:axis]):
        values = x[row].astype(np.float64)
        centre = values.sum() / values.size
        factor = 1 / np.sqrt(((values - centre) ** 2).sum() / values.size + epsilon)
        y[row], mean[row], inverse[row] = (values - centre) * factor * scale + (0 if b is None else b), centre, factor
    return y.astype(x.dtype), mean.astype(x.dtype), inverse.astype(x.dtype)
