"""Pieces of arrays that are worked on at once, so that what lies between several passes stays in the cache."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["BLOCK", "blocks", "in_block"]

BLOCK = 1 << 16
"""Elements of a temporary: two in float32 and two blocks of the tensors fill 1 MB of second-level cache."""


def in_block(size: int) -> int:
    """The elements of a temporary for an array of so many: those of its largest block."""
    return min(size, BLOCK)


def blocks(shape: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
    """Indices that cut an array into pieces of at most BLOCK elements, each contiguous where the array is."""
    if math.prod(shape) <= BLOCK:
        yield (...,)
        return
    axis = 0
    while math.prod(shape[axis + 1 :]) > BLOCK:
        axis += 1
    rows = BLOCK // math.prod(shape[axis + 1 :])
    for outer in np.ndindex(*shape[:axis]):
        for start in range(0, shape[axis], rows):
            yield (*outer, slice(start, start + rows))
