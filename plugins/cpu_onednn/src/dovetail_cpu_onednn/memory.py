"""Memory that the host refuses, as the error that names the device and, where it is known, the node."""

import mmap
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import Node, OutOfMemory

__all__ = ["ALIGNMENT", "Arenas", "aligned", "naming_out_of_memory", "refused", "require_free_memory"]

ALIGNMENT = 64
COMPILE_BYTES = 64 << 20
"""Bytes of address space that must be free before a primitive is chosen or made. Each of its kernels starts with 256 KiB; those
of a convolution by small matrix products are dozens. With this much, limits of the address space at seven points from 0.2 to
80 MB left the process usable after elementwise primitives, matrix products and convolutions of 16 to 300 channels."""

_PRIVATE: dict[str, int] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
"""Memory as `malloc` takes it. By default it is shared with child processes, which takes the system twice as long."""


@contextmanager
def naming_out_of_memory(node: Node | None = None) -> Iterator[None]:
    """Raise `OutOfMemory` that names ONEDNN and the node, for a `MemoryError` or an `OutOfMemory` that names neither."""
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
    return _aligned(np.empty(size + ALIGNMENT, np.uint8), size)


def _aligned(memory: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


class Arenas:
    """Memory for requests, shared by all plans of a model: a new request takes that of one that ended, if the size is near.

    A system clears new memory page by page when it is touched: for images that is a good part of a first run. At most one
    block waits here.
    """

    SMALLEST = 1 << 20

    def __init__(self) -> None:
        self._spare: deque[NDArray[np.uint8]] = deque(maxlen=1)

    def take(self, size: int) -> NDArray[np.uint8]:
        """As `aligned`. The memory comes back when the last array in it is gone, results that a caller holds among them."""
        if size < self.SMALLEST:
            return aligned(size)
        needed = size + ALIGNMENT
        try:
            block = self._spare.pop()
        except IndexError:
            block = np.empty(0, np.uint8)
        if not needed <= block.size <= 4 * needed:
            del block  # before there is another
            # Pages that are never touched cost nothing, and plans for somewhat larger shapes find room.
            block = np.empty(1 << needed.bit_length(), np.uint8)
        lent = _Lent(block)
        weakref.finalize(lent, self._spare.append, block).atexit = False
        return _aligned(np.asarray(lent), size)

    def clear(self) -> None:
        """Free what waits."""
        self._spare.clear()


class _Lent:
    """Owns the memory of a block as long as arrays are in it."""

    def __init__(self, block: NDArray[np.uint8]) -> None:
        self.__array_interface__: dict[str, Any] = block.__array_interface__


def require_free_memory() -> None:
    """Raise `OutOfMemory` unless the host has `COMPILE_BYTES`.

    oneDNN 3.2 does not survive less. Choosing an implementation may crash; and Xbyak, by which it writes code, notes a refused
    allocation in a variable of the process and never clears it, so that every primitive fails from then on.
    """
    if _is_unlimited():
        return
    try:
        mmap.mmap(-1, COMPILE_BYTES, **_PRIVATE).close()
    except OSError:
        raise OutOfMemory(f"oneDNN: the host refuses {COMPILE_BYTES} bytes, in which primitives are compiled") from None


def _is_unlimited() -> bool:
    """Whether Linux lends the process any address space. To take and return it costs 5 us, twice for each primitive, in which
    other threads wait that touch new memory.
    """
    if not _overcommits():
        return False
    from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit  # Windows has none of it

    return getrlimit(RLIMIT_AS)[0] == RLIM_INFINITY


@cache
def _overcommits() -> bool:
    try:
        return Path("/proc/sys/vm/overcommit_memory").read_text().strip() != "2"
    except OSError:
        return False
