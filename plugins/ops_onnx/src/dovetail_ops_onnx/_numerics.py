"""Rounding a result to its type, and the limits of types."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph import DType
from dovetail_ops_onnx._casts import to_integer
from dovetail_ops_onnx._elementwise import converted


def rounded(y: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """`y` as an array of `dtype`. Floats become integers by truncation: NaN is 0, what is out of range the nearest bound."""
    given = np.asarray(y)
    if given.dtype == dtype:
        return given
    with np.errstate(over="ignore", invalid="ignore"):
        if is_float(given) and not DType.of(dtype).is_float:
            return to_integer(given, dtype)
        return converted(given, dtype)


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
    return x.dtype.kind == "f" or DType.of(x.dtype).is_float
