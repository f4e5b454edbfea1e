"""Caches: files that may be lost at any time, with what a device compiled or measured for the next process.

One section (a folder) for each kind of content, one file for each entry, named by the digest of everything that the content
depends on. Processes share it without locks: an entry appears whole or not at all. Nothing that is wrong with the folder,
its files or the disk is an error. It is a miss, and costs the time of making the content again. A folder that another user
owns, or that everybody may write to, is not used, with one warning.
"""

import contextlib
import functools
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from dovetail._files import user_folder
from dovetail._version import __version__
from dovetail.dataclass import dataclass
from dovetail.errors import UsageError

__all__ = ["LIMIT", "Entry", "FileCache", "cache_folder", "cache_key", "clear_cache", "list_cache"]

LIMIT = 512 << 20
"""Bytes that a section may have, unless `DOVETAIL_CACHE_LIMIT` says otherwise."""

_OURS = b"dovetail-"
"""The first bytes of every entry."""
_MAGIC = b"dovetail-cache-1\n"
_HEAD = len(_MAGIC) + 32
_KEY = re.compile(r"[0-9a-f]{64}\Z")
_WRITING = ".writing-"
_STALE = 3600.0
"""Seconds after which a file that was never finished belongs to a process that is gone."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the cache: its section and path, its bytes, and when it was used last (seconds since 1970)."""

    section: str
    path: Path
    nbytes: int
    used: float


def cache_folder() -> Path | None:
    """The folder of all sections: `DOVETAIL_CACHE_DIR`, else the platform's cache folder. None for a user without a home."""
    chosen = os.environ.get("DOVETAIL_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return user_folder("cache")


def cache_key(*parts: str) -> str:
    """The name of the entry that depends on these texts and on dovetail's version; their order and borders count."""
    import hashlib  # OpenSSL: 3 ms at start-up

    return hashlib.sha256("".join(f"{len(part)}:{part}" for part in (__version__, *parts)).encode()).hexdigest()


class FileCache:
    """One section. Safe between threads and processes; the entries used least recently go when it outgrows its limit.

    `folder` is that of all sections, by default `cache_folder()`; `limit` is in bytes. Raises `UsageError` when the variable
    `DOVETAIL_CACHE_LIMIT` is not a number, and nothing else ever.
    """

    def __init__(self, section: str, folder: Path | None = None, limit: int | None = None) -> None:
        root = cache_folder() if folder is None else folder
        self._section = section
        self._folder = None if root is None or not (_is_private(root) and _is_private(root / section)) else root / section
        self._limit = _limit() if limit is None else limit

    @property
    def keeps(self) -> bool:
        """False when nothing will ever be kept: without a folder, or with a limit of 0. Callers then make nothing for it."""
        return self._folder is not None and self._limit > 0

    def get(self, key: str) -> bytes | None:
        """The content, if it is there and whole: each has its digest in front."""
        if self._folder is None:
            return None
        path = self._folder / key
        try:
            content = _read(path)
        except OSError:
            return None
        if content[:_HEAD] != _head(content[_HEAD:]):
            return None
        with contextlib.suppress(OSError):  # a folder that cannot be written can be read all the same
            os.utime(path)
        return content[_HEAD:]

    def path(self, key: str) -> Path | None:
        """Where the content of a key is, if it is kept: for entries that are mapped, which check themselves."""
        return None if self._folder is None else self._folder / key

    def put(self, key: str, content: bytes) -> None:
        """Keep the content, in place of what was there; others see it whole or not at all."""
        if len(content) + _HEAD <= self._limit:
            self.put_pieces(key, (_head(content), content))

    def put_pieces(self, key: str, pieces: Iterable[bytes | memoryview]) -> str:
        """As `put`, for an entry that begins with a name of its own in place of a digest. Raises what `pieces` raises.

        Returns why the entry was not kept; `""` when it was.
        """
        if not self.keeps:
            return "the limit is 0, or the folder is not used"
        assert self._folder is not None
        import tempfile  # 4 ms, for processes that write

        temporary = ""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=_WRITING)
            with os.fdopen(handle, "wb") as file:
                for piece in pieces:
                    file.write(piece)
                    if file.tell() > self._limit:
                        return f"it has more than {self._limit:,} bytes"
            os.replace(temporary, self._folder / key)
            temporary = ""
            self._shrink(keep=key)
        except OSError as error:
            return error.strerror or str(error)
        finally:
            if temporary:
                _remove(Path(temporary))
        return ""

    def _shrink(self, keep: str) -> None:
        assert self._folder is not None
        if _bytes_in(self._folder) <= self._limit:  # the usual case; looking into every file would cost more than making most
            return
        entries = sorted(_entries(self._section, self._folder), key=lambda entry: entry.used)
        excess = sum(entry.nbytes for entry in entries) - self._limit
        for entry in entries:
            if excess > 0 and entry.path.name != keep:
                excess -= entry.nbytes if _remove(entry.path) else 0


def list_cache(folder: Path) -> tuple[Entry, ...]:
    """All entries of all sections under `folder`. Other files are not entries, whatever they are called."""
    try:
        sections = sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return ()
    return tuple(entry for section in sections for entry in _entries(section.name, section))


def clear_cache(folder: Path, section: str = "") -> tuple[Entry, ...]:
    """Delete the entries under `folder`, or those of one section. Returns those that are gone; other files stay."""
    return tuple(e for e in list_cache(folder) if section in ("", e.section) and _remove(e.path))


def _limit() -> int:
    given = os.environ.get("DOVETAIL_CACHE_LIMIT", "")
    if not given:
        return LIMIT
    if not given.isdecimal():
        raise UsageError(f"DOVETAIL_CACHE_LIMIT is {given!r}; accepted: a number of bytes, 0 to keep nothing")
    return int(given)


def _head(content: bytes) -> bytes:
    import hashlib  # as above

    return _MAGIC + hashlib.sha256(content).digest()


def _entries(section: str, folder: Path) -> Iterator[Entry]:
    """The entries of a section, and what processes that died left behind: files that were never finished."""
    try:
        found = list(os.scandir(folder))
    except OSError:
        return
    for item in found:
        with contextlib.suppress(OSError):  # another process may have removed it meanwhile
            status = item.stat(follow_symlinks=False)
            stale = item.name.startswith(_WRITING) and time.time() - status.st_mtime > _STALE
            if item.is_file(follow_symlinks=False) and (stale or _KEY.match(item.name)) and (stale or _is_ours(item.path)):
                yield Entry(section, Path(item.path), status.st_size, status.st_mtime)


def _bytes_in(folder: Path) -> int:
    """The bytes of all files, entries or not: never less than those of the entries."""
    total = 0
    for item in os.scandir(folder):
        with contextlib.suppress(OSError):  # as above
            total += item.stat(follow_symlinks=False).st_size
    return total


def _is_ours(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(len(_OURS)) == _OURS


def _read(path: Path) -> bytes:
    """The content of an ordinary file. Raises `OSError` for anything else; never waits for the writer of a FIFO."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not an ordinary file")
        return file.read()


@functools.cache  # one warning for each folder
def _is_private(folder: Path) -> bool:
    """False, with a warning, for a folder that another user owns or may write to: what is read from it runs on devices."""
    try:
        found = folder.stat()
    except OSError:
        return True  # it is made later, for this user alone
    advice = "name another, or fix it with chown and chmod 700"
    if not stat.S_ISDIR(found.st_mode):
        reason, advice = "it is not a folder", "name another"
    elif not hasattr(os, "geteuid"):  # Windows has no such modes
        return True
    elif found.st_mode & stat.S_IWOTH:
        reason = "everybody may write to it"
    elif found.st_uid != os.geteuid():
        reason = f"user {found.st_uid} owns it"
    else:
        return True
    import logging  # 4 ms, for few users

    logging.getLogger(__name__).warning("the cache folder %s is not used: %s; %s", folder, reason, advice)
    return False


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True
