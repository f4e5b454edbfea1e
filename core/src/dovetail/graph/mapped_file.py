"""Weights in a file: mapped until a device has copied them, or reads them in place."""

import mmap
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import FormatError
from dovetail.graph.reloadable import Reloadable, owner
from dovetail.names import printable

__all__ = ["SMALLEST_REGION", "MappedFile", "place_in_file"]

SMALLEST_REGION = 1 << 16
"""Bytes from which on a part of a file is worth a region of its own; smaller ones are better copied."""

_STEP = 1 << 22
"""Bytes that are copied before the pages that they are copied from are given back."""


class MappedFile:
    """The content of a file, read by the system when it is first used.

    Reading a page of a file that became shorter ends the process, and a file that is written to has other content. So plans are
    made only after `check`, and what a device reads while a model runs is in memory of its own (`dovetail.device.aligned`). A
    file that is replaced by another one, or removed, lives as long as it is mapped.
    """

    def __init__(self, path: Path, memory: mmap.mmap, status: os.stat_result) -> None:
        self._memory = memory
        self.path = path
        """The absolute path, without links, which may lead elsewhere later."""
        self.status = status
        """The status of the file when it was mapped."""
        self.content = np.frombuffer(memory, np.uint8)
        """The whole content, read-only."""

    @classmethod
    def of(cls, path: Path, descriptor: int) -> "MappedFile | None":
        """A file that is open for reading; None where the system cannot map it and give memory back."""
        if not hasattr(mmap.mmap, "madvise"):  # as on Windows, where a mapped file cannot be replaced either
            return None
        status = os.fstat(descriptor)
        try:
            memory = mmap.mmap(descriptor, status.st_size, mmap.MAP_PRIVATE, mmap.PROT_READ)
        except (OSError, ValueError):  # a file system without mappings, or an empty file
            return None
        return cls(Path(os.path.realpath(path)), memory, status)

    def region(self, offset: int, length: int) -> NDArray[np.uint8]:
        """Bytes of the file, read-only. Their address has the remainder of their place in the file, which may be odd."""
        return np.asarray(_Region(self, self.content[offset : offset + length]))

    def give_back(self, first: int, end: int) -> None:
        """Give the memory of the whole pages between two bytes back to the system."""
        first, end = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
        if first < end:
            self._memory.madvise(mmap.MADV_DONTNEED, first, end - first)

    def check(self) -> None:
        """Raise `FormatError` if the file was written to since it was mapped."""
        try:
            now = os.lstat(self.path)
        except OSError:  # it was removed
            return
        if os.path.samestat(now, self.status) and not _is_unchanged(now, self.status):
            raise FormatError(
                f"the file '{printable(str(self.path))}' was changed since the model was read, and is needed again",
                hint="read the model again; write a new file and rename it instead of writing into one that is in use",
            )


class _Region(Reloadable):
    """A part of a file, the base of the arrays in it."""

    def __init__(self, file: MappedFile, content: NDArray[np.uint8]) -> None:
        self._file, self._content = file, content
        self._copy: weakref.ref[NDArray[np.uint8]] | None = None
        self.__array_interface__: dict[str, Any] = content.__array_interface__

    @property
    def checked(self) -> MappedFile:
        return self._file

    def aligned(self, array: NDArray[Any]) -> NDArray[Any]:
        copy = self._copy() if self._copy is not None else None
        if copy is None:
            copy = self._copied()
            self._copy = weakref.ref(copy)
        found: NDArray[Any] = np.ndarray(array.shape, array.dtype, copy, self._place(array), array.strides)
        found.flags.writeable = False
        return found

    def _place(self, array: NDArray[Any]) -> int:
        """The byte of the region at which the first element of an array in it is."""
        return int(array.ctypes.data - self._content.ctypes.data)

    def _copied(self) -> NDArray[np.uint8]:
        """A copy. The memory is given back piece by piece, so that both are never there as a whole."""
        self._file.check()
        length = self._content.nbytes
        copy = _memory(length)
        for start in range(0, length, _STEP):
            end = min(start + _STEP, length)
            copy[start:end] = self._content[start:end]
            self._give_back(start, end)
        return copy

    def place(self, array: NDArray[Any]) -> int:
        """The byte of the file at which the first element of an array in the region is."""
        return int(array.ctypes.data - self._file.content.ctypes.data)

    def let_go(self) -> None:
        self._give_back(0, self._content.nbytes)

    def _give_back(self, start: int, end: int) -> None:
        place = int(self._content.ctypes.data - self._file.content.ctypes.data)
        self._file.give_back(place + start, place + end)

    def check(self) -> None:
        self._file.check()


def place_in_file(array: NDArray[Any]) -> tuple[MappedFile, int] | None:
    """The file that has the bytes of a contiguous array in their order, and where they begin; None for other arrays."""
    region: Any = owner(array).base
    is_there = isinstance(region, _Region) and array.flags.c_contiguous and array.nbytes > 0
    return (region.checked, region.place(array)) if is_there else None


def _memory(size: int) -> NDArray[np.uint8]:
    try:
        found = mmap.mmap(-1, max(size, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} bytes cannot be mapped") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        found.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(found, np.uint8)


def _is_unchanged(now: os.stat_result, before: os.stat_result) -> bool:
    return (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
