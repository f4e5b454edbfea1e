"""Memory that the host refuses, as the error that names the device and, where it is known, the node."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from dovetail.device import Node, OutOfMemory
from numpy.typing import NDArray

__all__ = ["ALIGNMENT", "aligned", "naming", "refused"]

ALIGNMENT = 64


@contextmanager
def naming(node: Node | None = None) -> Iterator[None]:
    """Raise `OutOfMemory` for a `MemoryError`, and for an `OutOfMemory` without a place, naming ONEDNN and the node."""
    try:
        yield
    except (MemoryError, OutOfMemory) as error:
        raise refused(error, node) from error


def refused(error: Exception, node: Node | None = None) -> OutOfMemory:
    """The error to raise for a `MemoryError` or `OutOfMemory`."""
    text = error.message if isinstance(error, OutOfMemory) else str(error) or "the host has no memory left"
    if isinstance(error, OutOfMemory) and text.startswith("ONEDNN"):
        return error
    return OutOfMemory(f"ONEDNN: {text}" if node is None else f"ONEDNN, node {node}: {text}")


def aligned(size: int) -> NDArray[np.uint8]:
    """So many bytes, not set to anything, from an address that is a multiple of `ALIGNMENT`. Raises `MemoryError`."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]
