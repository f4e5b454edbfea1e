"""Memory that the host refuses, as the error that names the device and, where it is known, the node."""

import ctypes
import mmap
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dovetail.device import Arenas, Node, OutOfMemory

__all__ = ["ALIGNMENT", "aligned", "lends_any_memory", "naming_out_of_memory", "placed", "refused", "require_free_memory"]

ALIGNMENT = Arenas.ALIGNMENT
COMPILE_BYTES = 64 << 20
"""Bytes of address space that must be free before a primitive is chosen or made. Each of its kernels starts with 256 KiB; those
of a convolution by small matrix products are dozens. With this much, limits of the address space at seven points from 0.2 to
80 MB left the process usable after elementwise primitives, matrix products and convolutions of 16 to 300 channels."""

_PRIVATE: dict[str, int] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
"""Memory as `malloc` takes it. By default it is shared with child processes, which takes the system twice as long."""


class naming_out_of_memory:  # noqa: N801  # reads as a statement; a generator would take 2 us, several times for each node
    """Raise `OutOfMemory` that names ONEDNN and the node, for a `MemoryError` or an `OutOfMemory` that names neither."""

    __slots__ = ("_node",)

    def __init__(self, node: Node | None = None) -> None:
        self._node = node

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, MemoryError | OutOfMemory):
            raise refused(error, self._node) from error


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


def lends_any_memory() -> bool:
    """Whether the system lends the process any address space."""
    return _is_unlimited()()


def require_free_memory() -> None:
    """Raise `OutOfMemory` unless the host has `COMPILE_BYTES`.

    oneDNN 3.2 does not survive less. Choosing an implementation may crash; and Xbyak, by which it writes code, notes a refused
    allocation in a variable of the process and never clears it, so that every primitive fails from then on.
    """
    if lends_any_memory():
        return
    try:
        mmap.mmap(-1, COMPILE_BYTES, **_PRIVATE).close()
    except OSError:
        raise OutOfMemory(f"oneDNN: the host refuses {COMPILE_BYTES} bytes, in which primitives are compiled") from None


@cache
def _is_unlimited() -> Callable[[], bool]:
    """A call that returns whether Linux lends the process any address space. To take and return it costs 5 us, twice for each
    primitive, in which other threads wait that touch new memory.
    """
    try:
        lends = Path("/proc/sys/vm/overcommit_memory").read_text().strip() != "2"
    except OSError:
        lends = False
    if not lends:
        return lambda: False
    from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit  # Windows has none of it

    return lambda: getrlimit(RLIMIT_AS)[0] == RLIM_INFINITY


def placed(code: bytes) -> int | None:
    """The address of machine code in memory, a function by the calling convention of System V.

    None on other processors and systems, and where memory cannot be made executable.
    """
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return None
    memory = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(code)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    # Never writable and executable at once, which some systems forbid.
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(start), ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ | mmap.PROT_EXEC):
        return None
    # Never unmapped, also where Python frees all modules at its end: threads that release its lock may run the code until then.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
    return start
