"""The states of a model's files, to find out later whether plans of the model still belong to them."""

import os
import zlib

from dovetail.dataclass import dataclass

__all__ = ["FileState", "is_as_read", "status_of", "times_of"]

_CHUNK = 1 << 20
"""Bytes that are read at once."""

_checksums: dict[tuple[str, int, int, int], int | None] = {}
"""Of files that this process has read; each plan of a model needs them."""


@dataclass(frozen=True)
class FileState:
    """A file of a model: its path, bytes, the times of the last change of its content and of its status, and its checksum.

    Times are in nanoseconds. The checksum is None for a file that had changed since it was read.
    """

    path: str
    nbytes: int
    modified: int
    changed: int
    checksum: int | None

    @staticmethod
    def of(path: str, read: os.stat_result) -> "FileState":
        """Of a file that was read with this status."""
        key = path, *times_of(read)
        if key not in _checksums:
            found = _checksum(path)
            _checksums[key] = found if is_as_read(path, read) else None
        return FileState(*key, _checksums[key])

    def is_current(self, now: os.stat_result | None = None) -> bool:
        """Whether the file is as it was, `now` or when it was opened with this status.

        Where only its times differ, as those of a copy do, its content is compared.
        """
        now = now or status_of(self.path)
        if times_of(now) == self.times:
            return True
        return now.st_size == self.nbytes and self.checksum is not None and self.checksum == FileState.of(self.path, now).checksum

    @property
    def times(self) -> tuple[int, int, int]:
        """Bytes and times."""
        return self.nbytes, self.modified, self.changed


def is_as_read(path: str, read: os.stat_result) -> bool:
    """Whether a file has not been touched since it was read with this status."""
    return times_of(status_of(path)) == times_of(read)


def times_of(status: os.stat_result) -> tuple[int, int, int]:
    """Bytes, and when content and status last changed: tools that unpack archives set the first time."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _checksum(path: str) -> int | None:
    found = 0
    try:
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(_CHUNK):
                found = zlib.crc32(piece, found)
    except OSError:
        return None
    return found


def status_of(path: str) -> os.stat_result:
    """Of a file that is gone, one that no file has."""
    try:
        return os.stat(path)
    except OSError:
        return os.stat_result((0,) * 10)
