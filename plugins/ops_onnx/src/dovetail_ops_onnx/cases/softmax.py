"""Cases of Softmax: rows in float64."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.softmax import Softmax, Softmax_1


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every axis, the flattening form before version 13, large and infinite values, batch 0, float16 and float64."""
    x = rng.standard_normal((2, 3, 5)).astype(np.float32)
    for axis in (-1, 0, 1):
        yield Case(f"axis_{axis}", Softmax(axis=axis), (x,), (_along(x, axis),))
    for axis in (1, 2, 0, -1):
        rows = math.prod(x.shape[: axis % 3])
        want = _along(x.reshape(rows, -1), 1).reshape(x.shape)
        yield Case(f"version_1_axis_{axis}", Softmax_1(axis=axis), (x,), (want,))
    yield Case("version_1_vector", Softmax_1(), (x[0, 0],), (_along(x[0, 0], 0),))
    odd = (rng.standard_normal((3, 129)) * 4).astype(np.float32)
    yield Case("odd_length", Softmax(), (odd,), (_along(odd, 1),))
    big = np.array([[1000, 1000, -1000], [-np.inf, 0, 0]], np.float32)
    yield Case("large_and_infinite", Softmax(), (big,), (np.array([[0.5, 0.5, 0], [0, 0.5, 0.5]], np.float32),))
    lost = np.array([[np.nan, 1], [-np.inf, -np.inf]], np.float32)
    yield Case("nan", Softmax(), (lost,), (np.full((2, 2), np.nan, np.float32),))
    yield Case("batch_0", Softmax(), (x[:0],), (x[:0].copy(),))
    yield Case("float16", Softmax(axis=1), (x.astype(np.float16),), (_along(x.astype(np.float16), 1),), rtol=2e-3, atol=1e-4)
    wide = rng.standard_normal((4, 7))
    yield Case("float64", Softmax(), (wide,), (_along(wide, 1),), rtol=1e-12)


def _along(x: NDArray[Any], axis: int) -> NDArray[Any]:
    e = np.exp(x.astype(np.float64))
    y: NDArray[Any] = (e / e.sum(axis=axis, keepdims=True)).astype(x.dtype)
    return y
