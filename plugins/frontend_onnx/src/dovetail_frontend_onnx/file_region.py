"""A part of a data file in memory, which is given back by putting the pages of the file in its place."""

import ctypes
import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.frontend import FormatError, Reloadable, printable

__all__ = ["FileRegion", "is_reloadable"]

SMALLEST = 1 << 20
"""Bytes from which on a region is worth a memory mapping, of which a process may have some ten thousand."""

_ALIGNMENT = 64
"""Bytes: the address of a region has the remainder of its place in the file, and kernels read whole cache lines."""

_IS_SUPPORTED = sys.platform == "linux" and sys.maxsize > 2**32


def is_reloadable(offset: int, length: int) -> bool:
    """Whether this part of a file can be a `FileRegion`."""
    return _IS_SUPPORTED and length >= SMALLEST and offset % _ALIGNMENT == 0


class FileRegion(Reloadable):
    """Bytes of a file, read into memory by `read_into`, which gets a writable view. The file may change afterwards.

    Until memory is given back: then its whole pages are those of the file, mapped, unless that was changed in between. Nothing
    reads them while a model runs; `check` finds out before a model is planned again whether the file is still the same, because
    reading what is past the end of a file that was shortened ends the process.
    """

    def __init__(self, path: Path, status: os.stat_result, offset: int, length: int, read_into: Callable[[memoryview], None]):
        start = offset % mmap.PAGESIZE
        memory = mmap.mmap(-1, start + length, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
        read_into(memoryview(memory)[start:])
        self._memory = memory
        self._path, self._status, self._offset, self._length = path, status, offset, length
        self._address = int(np.frombuffer(memory, np.uint8).ctypes.data) + start
        self._is_given_back = False

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": (self._length,), "typestr": "|u1", "data": (self._address, True), "version": 3}

    def let_go(self) -> None:
        first = -(-self._address // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (self._address + self._length) // mmap.PAGESIZE * mmap.PAGESIZE
        if self._is_given_back or last <= first:
            return
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # it was removed: the memory stays
            return
        try:
            if _is_same(os.fstat(descriptor), self._status):
                _map_over(first, last - first, descriptor, self._offset + first - self._address)
                self._is_given_back = True
        finally:
            os.close(descriptor)

    def check(self) -> None:
        if not self._is_given_back:
            return
        try:
            now = os.lstat(self._path)
        except OSError:  # it was removed: its pages live as long as they are mapped
            return
        if os.path.samestat(now, self._status) and not _is_same(now, self._status):
            raise FormatError(
                f"the data file '{printable(str(self._path))}' was changed since the model was read, and is needed again",
                hint="read the model again; write a new file and rename it instead of writing into one that is in use",
            )


def _is_same(now: os.stat_result, before: os.stat_result) -> bool:
    return os.path.samestat(now, before) and (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def _map_over(address: int, length: int, descriptor: int, offset: int) -> None:
    """Map a part of a file in the place of other memory. Raises `OSError`."""
    call = ctypes.CDLL(None, use_errno=True).mmap
    call.restype = ctypes.c_void_p
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
    flags = mmap.MAP_PRIVATE | _MAP_FIXED
    if call(address, length, mmap.PROT_READ, flags, descriptor, offset) != address:
        raise OSError(ctypes.get_errno(), "a part of a data file cannot be mapped")


_MAP_FIXED = 0x10
"""On every architecture of Linux that has 64 bits."""
