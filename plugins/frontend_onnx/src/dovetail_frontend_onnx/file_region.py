"""A part of a file in memory, which is given back by putting the pages of the file in its place."""

import ctypes
import mmap
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.frontend import FormatError, Reloadable, printable

__all__ = ["FileRegion", "is_reloadable"]

SMALLEST = 1 << 18
"""Bytes from which on a region is worth a memory mapping, of which a process may have some ten thousand."""

_ALIGNMENT = 64
"""Bytes: kernels read whole cache lines."""

_STEP = 1 << 22
"""Bytes that are copied before those that they are copied from are given back."""

_IS_SUPPORTED = sys.platform == "linux" and sys.maxsize > 2**32


def is_reloadable(length: int) -> bool:
    """Whether this many bytes of a file can be a `FileRegion`."""
    return _IS_SUPPORTED and length >= SMALLEST


class FileRegion(Reloadable):
    """Bytes of a file, read into memory by `read_into`, which gets a writable view. The file may change afterwards.

    The address has the remainder of the bytes' place in the file, which may be odd: `aligned` is for who needs another one.
    Until memory is given back: then its whole pages are those of the file, mapped, unless that was changed in between. Nothing
    reads them while a model runs; `check` finds out before a model is planned again whether the file is still the same, because
    reading what is past the end of a file that was shortened ends the process.
    """

    def __init__(self, path: Path, status: os.stat_result, offset: int, length: int, read_into: Callable[[memoryview], None]):
        start = offset % mmap.PAGESIZE
        memory = _memory(start + length)
        read_into(memoryview(memory)[start:])
        self._memory = memory
        self._path, self._status, self._offset, self._length = path, status, offset, length
        self._address = int(np.frombuffer(memory, np.uint8).ctypes.data) + start
        self._is_given_back = False
        self._copy: weakref.ref[NDArray[np.uint8]] | None = None

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": (self._length,), "typestr": "|u1", "data": (self._address, True), "version": 3}

    def aligned(self, array: NDArray[Any]) -> NDArray[Any]:
        if self._address % _ALIGNMENT == 0:
            return array
        copy = self._copy() if self._copy is not None else None
        if copy is None:
            copy = self._moved()
            self._copy = weakref.ref(copy)
        place = int(array.ctypes.data) - self._address
        found: NDArray[Any] = np.ndarray(array.shape, array.dtype, copy, place, array.strides)
        found.flags.writeable = False
        return found

    def _moved(self) -> NDArray[np.uint8]:
        """A copy. The memory is given back piece by piece, so that both are never there as a whole."""
        copy, content = np.frombuffer(_memory(self._length), np.uint8), np.asarray(self)
        with self._unchanged_file() as descriptor:
            for start in range(0, self._length, _STEP):
                end = min(start + _STEP, self._length)
                copy[start:end] = content[start:end]
                if descriptor is not None:
                    self._give_back(descriptor, end)
        return copy

    def let_go(self) -> None:
        if not self._is_given_back:
            with self._unchanged_file() as descriptor:
                if descriptor is not None:
                    self._give_back(descriptor, self._length)

    def _give_back(self, descriptor: int, end: int) -> None:
        """Map the file in the place of the whole pages before byte `end`."""
        first = -(-self._address // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (self._address + end) // mmap.PAGESIZE * mmap.PAGESIZE
        if first < last:
            _map_over(first, last - first, descriptor, self._offset + first - self._address)
            self._is_given_back = True

    @contextmanager
    def _unchanged_file(self) -> Iterator[int | None]:
        """A descriptor of the file; None if it was removed or changed: then the memory stays."""
        descriptor = None
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            yield descriptor if descriptor is not None and _is_same(os.fstat(descriptor), self._status) else None
        finally:
            if descriptor is not None:
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
                f"the file '{printable(str(self._path))}' was changed since the model was read, and is needed again",
                hint="read the model again; write a new file and rename it instead of writing into one that is in use",
            )


def _memory(size: int) -> mmap.mmap:
    try:
        found = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} bytes cannot be mapped") from error
    found.madvise(mmap.MADV_HUGEPAGE)
    return found


def _is_same(now: os.stat_result, before: os.stat_result) -> bool:
    return os.path.samestat(now, before) and (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def _map_over(address: int, length: int, descriptor: int, offset: int) -> None:
    """Map a part of a file in the place of other memory. Raises `OSError`."""
    flags = mmap.MAP_PRIVATE | _MAP_FIXED
    if _mmap()(address, length, mmap.PROT_READ, flags, descriptor, offset) != address:
        raise OSError(ctypes.get_errno(), "a part of a file cannot be mapped")


@cache
def _mmap() -> Any:
    call = ctypes.CDLL(None, use_errno=True).mmap
    call.restype = ctypes.c_void_p
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64)
    return call


_MAP_FIXED = 0x10
"""On every architecture of Linux that has 64 bits."""
