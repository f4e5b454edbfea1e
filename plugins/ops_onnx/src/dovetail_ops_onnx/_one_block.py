"""Arrays in one block of memory, so that a device takes all of them as one buffer; those that plans share."""

import itertools
import math
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.graph import owner

__all__ = ["block_of", "is_one_memory", "made_once", "once"]

Array = NDArray[Any]
_Kinds = tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
"""Shape and type of each array."""

_LINE = 64
"""Bytes of which arrays in a block begin at a multiple."""


def _size_of(arrays: Sequence[Array]) -> int:
    """The bytes of a block for these arrays."""
    return _places([array.nbytes for array in arrays])[-1]


def block_of(arrays: Sequence[Array]) -> Array | None:
    """The bytes that hold these arrays in their order, each from a multiple of 64 on; None where they are elsewhere."""
    root = owner(arrays[0])
    if root.dtype != np.uint8 or root.ndim != 1 or any(owner(a) is not root or not a.flags.c_contiguous for a in arrays):
        return None
    *starts, end = _places([array.nbytes for array in arrays])
    found = [array.ctypes.data - root.ctypes.data for array in arrays]
    return root if found == starts and end == root.nbytes else None


def _places(sizes: Sequence[int]) -> list[int]:
    """Where arrays of so many bytes begin in a block, and its size."""
    return list(itertools.accumulate((-(-size // _LINE) * _LINE for size in sizes), initial=0))


def _parts_of(block: Array, kinds: _Kinds) -> list[Array]:
    """The arrays in a block, by their shapes and types."""
    sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in kinds]
    pairs = zip(kinds, _places(sizes), sizes, strict=False)
    return [block[start : start + size].view(dtype).reshape(shape) for (shape, dtype), start, size in pairs]


@dataclass(frozen=True)
class _Made:
    sources: tuple[weakref.ref[Array], ...]
    details: Any
    kinds: _Kinds
    block: weakref.ref[Array]


_made: dict[Hashable, _Made] = {}
_blocks: "weakref.WeakValueDictionary[int, Array]" = weakref.WeakValueDictionary()
"""By identity those that `once` made."""


def made_once(array: Array) -> bool:
    """Whether `once` made it: of its sources and key alone, whatever the sizes of other values are."""
    root = owner(array)
    return _blocks.get(id(root)) is root


def is_one_memory(one: Array, other: Array) -> bool:
    """Whether two arrays of the same type are the same part of an array."""
    return one.ctypes.data == other.ctypes.data and owner(one) is owner(other)


def once(sources: Sequence[Array], key: Hashable, make: Callable[[], tuple[Any, Sequence[Array]]]) -> tuple[Any, list[Array]]:
    """`make()`, or what it made before for the same key and memory of `sources`, as long as a plan uses that.

    It makes some details and arrays. So all plans of a model, for whatever shapes, share these; they are in one block.
    """
    roots = [owner(source) for source in sources]
    entry = key, *((id(root), a.ctypes.data, a.nbytes) for root, a in zip(roots, sources, strict=True))
    found = _made.get(entry)
    if found is not None and all(ref() is root for ref, root in zip(found.sources, roots, strict=True)):
        block = found.block()  # constants are views, which keep it alive
        if block is not None:
            return found.details, _parts_of(block, found.kinds)
    details, made = make()
    kinds = tuple((array.shape, array.dtype) for array in made)
    block = np.empty(_size_of(made), np.uint8)
    _blocks[id(block)] = block
    parts = _parts_of(block, kinds)
    for part, array in zip(parts, made, strict=True):
        part[...] = array
    watched = tuple(weakref.ref(root, lambda _: _made.pop(entry, None)) for root in roots)
    _made[entry] = _Made(watched, details, kinds, weakref.ref(block))
    return details, parts
