"""Access to a model's files: bounded, regular files only, and none outside the model's folder."""

import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path, PureWindowsPath
from typing import BinaryIO

from dovetail.dataclass import dataclass
from dovetail.errors import FormatError, raised_by_handler
from dovetail.names import printable

__all__ = ["FILES_READ", "FileRead", "ModelSource"]

FileRead = tuple[str, os.stat_result]
"""The absolute path of a file, and its status when it was opened."""

FILES_READ: ContextVar[list[FileRead]] = ContextVar("FILES_READ")
"""Where a reader of models collects the files that frontends open, the model's own first."""

_READ_ONLY = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # opening a FIFO would wait for a writer
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_WALKS_BY_DESCRIPTOR = os.open in os.supports_dir_fd and bool(_NO_FOLLOW)


@dataclass(frozen=True)
class ModelSource:
    """Argument of `Core.read_model`: the path of a model file, or its bytes."""

    data: Path | bytes

    @property
    def name(self) -> str:
        """The path for messages, or `<bytes>`."""
        return "<bytes>" if isinstance(self.data, bytes) else printable(str(self.data), limit=1000)

    def read(self, limit: int) -> bytes:
        """The whole content. Raises `FormatError` unless it is a regular file that can be read and has 1 to `limit` bytes."""
        if isinstance(self.data, bytes):
            self._check_size(len(self.data), limit)
            return self.data
        with self.open(limit) as (file, _):
            content = file.read()
        self._check_size(len(content), limit)
        return content

    @contextmanager
    def open(self, limit: int) -> Iterator[tuple[BinaryIO, int]]:
        """The content as a file to read from, and its size, for what need not be in memory as a whole. Raises as `read` does."""
        if isinstance(self.data, bytes):
            self._check_size(len(self.data), limit)
            yield io.BytesIO(self.data), len(self.data)
            return
        with io.BufferedReader(self._opened(limit)) as file:
            try:
                yield file, os.fstat(file.fileno()).st_size
            except OSError as error:
                raise self._unreadable(error) from error

    def _opened(self, limit: int) -> io.FileIO:
        assert isinstance(self.data, Path)
        try:
            # Looked at before it is opened, because opening a device can act on it; and again on the open file.
            _check_regular(os.stat(self.data))
            file = _file(os.open(self.data, _READ_ONLY | _NO_WAIT))
        except FormatError as error:
            raise FormatError(f"{self.name}: {error.message}", hint=error.hint) from None
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            raise self._unreadable(error) from error
        try:
            status = os.fstat(file.fileno())
            _check_regular(status)
            self._check_size(status.st_size, limit)
            FILES_READ.get([]).append((os.path.abspath(self.data), status))
        except FormatError as error:
            file.close()
            if not error.message.startswith(self.name):
                error.message = f"{self.name}: {error.message}"
            raise
        return file

    def _unreadable(self, error: OSError | ValueError) -> FormatError:
        """The error for a file that cannot be read. Raises the error itself where a handler of a signal raised it."""
        if raised_by_handler(error):
            raise error
        return FormatError(f"{self.name}: the file cannot be read: {_reason(error)}", hint="check the path")

    def _check_size(self, size: int, limit: int) -> None:
        if size == 0:
            raise FormatError(f"{self.name}: the file is empty", hint="was the download or export interrupted?")
        if size > limit:
            raise FormatError(f"{self.name}: the file has {size} bytes; accepted: at most {limit}")

    def open_beside(self, location: str) -> io.FileIO:
        """Open a file that the model refers to, for reading; `location` is a POSIX path relative to the model's folder.

        The path is walked folder by folder on open descriptors and no symbolic link below the model's folder is followed;
        the file must be regular and have no second hard link. So a model can reach only files beside it. Raises
        `FormatError` without the model's name, which the caller adds along with the tensor's.
        """
        if isinstance(self.data, bytes):
            raise FormatError(
                f"the data is in the file '{printable(location)}', but the model was given as bytes and has no folder",
                hint="give the model's path",
            )
        parts = _relative_parts(location)
        try:
            walk = _open_by_descriptors if _WALKS_BY_DESCRIPTOR else _open_by_names
            file = _file(walk(self.data.parent, parts))
        except (OSError, ValueError) as error:
            raise FormatError(
                f"the data file '{printable(location)}' cannot be opened: {_reason(error)}",
                hint="it must be a file below the model's folder, reached through no symbolic link",
            ) from error
        try:
            status = os.fstat(file.fileno())
            _check_contained(status, location)
        except FormatError:
            file.close()
            raise
        FILES_READ.get([]).append((os.path.abspath(self.data.parent.joinpath(*parts)), status))
        return file


def _relative_parts(location: str) -> list[str]:
    shown = printable(location)
    if not location or "\0" in location:
        raise FormatError(
            f"the location of the data file is {'empty' if not location else repr(shown)}", hint="accepted: a relative path"
        )
    windows = PureWindowsPath(location)
    if location.startswith("/") or windows.drive or windows.root or "\\" in location:
        raise FormatError(f"the location '{shown}' is not a relative POSIX path", hint="accepted: paths below the model's folder")
    parts = [part for part in location.split("/") if part not in ("", ".")]
    if ".." in parts or not parts:
        raise FormatError(f"the location '{shown}' leaves the model's folder", hint="accepted: a path below the model's folder")
    return parts


def _open_by_descriptors(folder: Path, parts: list[str]) -> int:
    current = os.open(folder, _READ_ONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _READ_ONLY | os.O_DIRECTORY | _NO_FOLLOW, dir_fd=current)
            os.close(current)
            current = inner
        return os.open(parts[-1], _READ_ONLY | _NO_FOLLOW | _NO_WAIT, dir_fd=current)
    finally:
        os.close(current)


def _open_by_names(folder: Path, parts: list[str]) -> int:
    """Where folders cannot be opened: compare the open file with what the path, free of links, names."""
    path = Path(os.path.realpath(folder)).joinpath(*parts)
    if os.path.realpath(path) != str(path):
        raise OSError("a symbolic link leads elsewhere")
    descriptor = os.open(path, _READ_ONLY | _NO_WAIT)
    if os.path.realpath(path) != str(path) or not os.path.samestat(os.fstat(descriptor), os.lstat(path)):
        os.close(descriptor)
        raise OSError("the file was exchanged while it was opened")
    return descriptor


def _file(descriptor: int) -> io.FileIO:
    try:
        return io.FileIO(descriptor, "rb")
    except OSError:  # a folder, which can be opened but is not a file
        os.close(descriptor)
        raise


def _check_contained(status: os.stat_result, location: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise FormatError(f"the data file '{printable(location)}' is {_kind(status)}", hint="accepted: a regular file")
    if status.st_nlink > 1:
        raise FormatError(
            f"the data file '{printable(location)}' has {status.st_nlink} hard links, so it may belong to something else",
            hint="copy it",
        )


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise FormatError(f"this is {_kind(status)}", hint="accepted: a regular file")


def _kind(status: os.stat_result) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFLNK: "a symbolic link"}
    return kinds.get(stat.S_IFMT(status.st_mode), "a device")


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
