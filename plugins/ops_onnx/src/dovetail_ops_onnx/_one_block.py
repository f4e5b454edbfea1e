"""Arrays in one block of memory, so that a device takes all of them as one buffer."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Kinds", "block_of", "parts_of", "root_of", "size_of"]

Array = NDArray[Any]
Kinds = tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
"""Shape and type of each array."""

_LINE = 64
"""Bytes of which arrays in a block begin at a multiple."""


def size_of(arrays: Sequence[Array]) -> int:
    """The bytes of a block for these arrays."""
    return _places([array.nbytes for array in arrays])[-1]


def block_of(arrays: Sequence[Array]) -> Array | None:
    """The bytes that hold these arrays in their order, each from a multiple of 64 on; None where they are elsewhere."""
    root = root_of(arrays[0])
    if root.dtype != np.uint8 or root.ndim != 1 or any(root_of(a) is not root or not a.flags.c_contiguous for a in arrays):
        return None
    *starts, end = _places([array.nbytes for array in arrays])
    found = [array.ctypes.data - root.ctypes.data for array in arrays]
    return root if found == starts and end == root.nbytes else None


def _places(sizes: Sequence[int]) -> list[int]:
    """Where arrays of so many bytes begin in a block, and its size."""
    return list(itertools.accumulate((-(-size // _LINE) * _LINE for size in sizes), initial=0))


def parts_of(block: Array, kinds: Kinds) -> list[Array]:
    """The arrays in a block, by their shapes and types."""
    sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in kinds]
    pairs = zip(kinds, _places(sizes), sizes, strict=False)
    return [block[start : start + size].view(dtype).reshape(shape) for (shape, dtype), start, size in pairs]


def root_of(array: Array) -> Array:
    """The array whose memory it is."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
