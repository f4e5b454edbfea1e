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
