"""Cases of LogSoftmax: rows in float64."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.log_softmax import LogSoftmax, LogSoftmax_1


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every axis, the flattening form before version 13, large values, batch 0, float16."""
    x = rng.standard_normal((2, 3, 5)).astype(np.float32)
    for axis in (-1, 0, 1):
        yield Case(f"axis_{axis}", LogSoftmax(axis=axis), (x,), (_along(x, axis),))
    for axis in (1, 2, 0):
        want = _along(x.reshape(math.prod(x.shape[:axis]), -1), 1).reshape(x.shape)
        yield Case(f"version_1_axis_{axis}", LogSoftmax_1(axis=axis), (x,), (want,))
    yield Case("version_1_vector", LogSoftmax_1(), (x[0, 0],), (_along(x[0, 0], 0),))
    big = np.array([[1000, 0], [-1000, -1000]], np.float32)
    want = np.array([[0, -1000], [-math.log(2), -math.log(2)]], np.float32)
    yield Case("large", LogSoftmax(), (big,), (want,))
    yield Case("batch_0", LogSoftmax(), (x[:0],), (x[:0].copy(),))
    half = x.astype(np.float16)
    yield Case("float16", LogSoftmax(axis=1), (half,), (_along(half, 1),), rtol=2e-3, atol=1e-3)


def _along(x: NDArray[Any], axis: int) -> NDArray[Any]:
    wide = x.astype(np.float64)
    y: NDArray[Any] = (wide - np.log(np.exp(wide).sum(axis=axis, keepdims=True))).astype(x.dtype)
    return y
