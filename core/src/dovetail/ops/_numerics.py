"""Rounding a result to its type, and the limits of types."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph.dtype import DType


def rounded(y: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """`y` as an array of `dtype`; a value that is too large becomes infinite without a warning."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(y).astype(dtype, copy=False)


def lowest(dtype: np.dtype[Any]) -> Any:
    """The smallest value of a type: -inf for floats, False for bool."""
    kind = DType.of(dtype)
    if kind.is_float:
        return -np.inf
    return False if kind is DType.BOOL else np.iinfo(dtype).min


def highest(dtype: np.dtype[Any]) -> Any:
    """The largest value of a type: inf for floats, True for bool."""
    kind = DType.of(dtype)
    if kind.is_float:
        return np.inf
    return True if kind is DType.BOOL else np.iinfo(dtype).max


def is_float(x: NDArray[Any]) -> bool:
    """True for every floating-point type, bfloat16 included."""
    return DType.of(x.dtype).is_float
