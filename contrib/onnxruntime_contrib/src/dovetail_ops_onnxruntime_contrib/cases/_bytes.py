"""Shared by the cases of operators on bytes: scales, and floats as bytes, rounded half to even."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["OUT", "SCALE", "random_bytes", "stored"]

Array = NDArray[Any]

# Powers of two: no float is rounded on the way, and every device finds the same bytes.
SCALE, OUT = np.array(0.5, np.float32), np.array(0.25, np.float32)


def random_bytes(rng: np.random.Generator, dtype: Any, *shape: int) -> Array:
    """Bytes of the whole range."""
    limits = np.iinfo(dtype)
    found: Array = rng.integers(limits.min, limits.max + 1, shape).astype(dtype)
    return found


def stored(y: Array, zero: int, dtype: Any, scale: float = 0.25) -> Array:
    """Floats as bytes."""
    limits = np.iinfo(dtype)
    return np.asarray(np.clip(np.rint(y / scale) + zero, limits.min, limits.max).astype(dtype))
