"""Arithmetic precision of the references: narrow floats are computed in float32 and rounded once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph.dtype import DType

_NARROW = (DType.FLOAT16, DType.BFLOAT16)


def widen(x: NDArray[Any]) -> NDArray[Any]:
    """float16 and bfloat16 as float32; anything else unchanged."""
    return x.astype(np.float32) if DType.of(x.dtype) in _NARROW else x


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
