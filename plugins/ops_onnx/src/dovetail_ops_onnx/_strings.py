"""Work on strings in parts. NumPy keeps Python's lock for the length of a call on objects, and no run can be left meanwhile."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dovetail_ops_onnx._types import Array

__all__ = ["PART", "in_parts", "indexed", "sorted_places"]

PART = 1 << 14
"""Elements of a part, which take up to some 20 ms."""


def in_parts(compute: Callable[..., object], dst: Array, *sources: Array) -> None:
    """Call `compute(dst, *sources)` for parts of the arrays, in order.

    They agree in the sizes of the leading axes that all have.
    """
    axes = min(array.ndim for array in (dst, *sources))
    axis = max(range(axes), key=dst.shape.__getitem__, default=0)
    if dst.size <= PART or axes == 0 or dst.shape[axis] < 2:
        compute(dst, *sources)
        return
    half = dst.shape[axis] // 2
    for part in (slice(None, half), slice(half, None)):
        where = (*(slice(None),) * axis, part)
        in_parts(compute, dst[where], *(array[where] for array in sources))


def indexed(data: Array, places: Sequence[Array]) -> Array:
    """`data[tuple(places)]` of arrays of indices, strings in parts."""
    if data.dtype != object:
        return np.asarray(data[tuple(places)] if len(places) > 1 else data.take(places[0], 0))
    wide = np.broadcast_arrays(*places)
    result = np.empty((*wide[0].shape, *data.shape[len(wide) :]), object)
    in_parts(lambda dst, *where: np.copyto(dst, data[where]), result, *wide)
    return result


def sorted_places(values: Sequence[Any]) -> Array:
    """The places of values in ascending order of these."""
    import heapq  # 1 ms, in models that sort strings only

    at, count = values.__getitem__, len(values)
    parts = [sorted(range(start, min(start + PART, count)), key=at) for start in range(0, count, PART)]
    return np.fromiter(heapq.merge(*parts, key=at), np.intp, count)
