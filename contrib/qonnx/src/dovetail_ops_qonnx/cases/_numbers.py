"""Numbers of cases as arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "floats", "numbers"]

Array = NDArray[Any]


def floats(values: Any) -> Array:
    """float32 values."""
    return np.asarray(values, np.float32)


def numbers(*values: float) -> tuple[Array, ...]:
    """Scalars of float32."""
    return tuple(floats(value) for value in values)
