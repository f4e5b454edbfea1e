"""Cases of Softmax: its formula in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType
from dovetail.testing import Case
from dovetail_ops_tim_vx.softmax import Softmax

Array = NDArray[Any]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every axis, beta, numbers that would overflow, every float type, empty."""
    x = (3 * rng.standard_normal((2, 3, 5, 4))).astype(np.float32)
    for axis in (0, 1, 2, 3, -1):
        yield Case(f"axis_{axis}", Softmax(axis=axis), (x,), (_softmax(x, axis),), atol=1e-7)
    yield Case("beta", Softmax(beta=-0.5), (x,), (_softmax(-0.5 * x, -1),), atol=1e-7)
    large = np.array([[1e30, 1e30, -1e30], [-3e38, -3e38, -3e38], [500, 500, 500]], np.float32)
    third = [1 / 3] * 3
    yield Case("large", Softmax(), (large,), (np.array([[0.5, 0.5, 0], third, third], np.float32),))
    for dtype, tolerance in ((DType.FLOAT16, 1e-3), (DType.BFLOAT16, 8e-3), (DType.FLOAT64, 1e-13)):
        given = x.astype(dtype.numpy)
        yield Case(dtype.value, Softmax(axis=1), (given,), (_softmax(given, 1),), rtol=tolerance, atol=tolerance)
    for name, shape in (("batch_0", (0, 3)), ("no_element", (3, 0))):
        yield Case(name, Softmax(), (np.zeros(shape, np.float32),), (np.zeros(shape, np.float32),))


def _softmax(x: Array, axis: int) -> Array:
    wide = x.astype(np.float64)
    exponents = np.exp(wide - wide.max(axis=axis, keepdims=True))
    return np.asarray(exponents / exponents.sum(axis=axis, keepdims=True)).astype(x.dtype)
