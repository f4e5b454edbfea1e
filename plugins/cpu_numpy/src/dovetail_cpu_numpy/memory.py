"""Host memory for the values of a request, and the bytes that arrays take in it."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail.device import OutOfMemory
from dovetail_cpu_numpy.launch import Array, Spec

__all__ = ["ALIGNMENT", "arena", "carved", "nbytes", "packed"]

ALIGNMENT = 64
"""Bytes: each array starts at a multiple of it."""


def arena(size: int) -> NDArray[np.uint8]:
    """Uninitialised bytes that start at a multiple of `ALIGNMENT`. Raises `OutOfMemory`."""
    try:
        memory = np.empty(size + ALIGNMENT, np.uint8)
    except MemoryError as error:
        raise OutOfMemory(f"NUMPY: the host refuses {size} bytes for the values of one request") from error
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def nbytes(spec: Spec) -> int:
    """The bytes of an array."""
    shape, dtype = spec
    return math.prod(shape) * dtype.itemsize


def packed(specs: Sequence[Spec]) -> int:
    """The bytes of arrays placed one after the other, each aligned."""
    return sum([-(-nbytes(spec) // ALIGNMENT) * ALIGNMENT for spec in specs]) if specs else 0


def carved(memory: NDArray[np.uint8], specs: Sequence[Spec]) -> Sequence[Array]:
    """The arrays in memory of `packed` bytes that starts at a multiple of `ALIGNMENT`."""
    found, offset = [], 0
    for spec in specs:
        found.append(memory[offset : offset + nbytes(spec)].view(spec[1]).reshape(spec[0]))
        offset += packed([spec])
    return found
