"""Writes a file whole or not at all, and finds the user's folders."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

from dovetail.errors import UsageError

__all__ = ["check_target", "user_folder", "write_file", "written_whole"]


def user_folder(kind: Literal["cache", "config"]) -> Path | None:
    """The user's folder for dovetail's files of this kind; None for a user without a home."""
    if sys.platform == "linux":  # as platformdirs finds it, which takes 4 ms to import
        base = os.environ.get(f"XDG_{kind.upper()}_HOME", "")
        found = Path(base if os.path.isabs(base) else os.path.expanduser(f"~/.{kind}"), "dovetail")
    else:
        import platformdirs

        try:
            if kind == "cache":
                found = platformdirs.user_cache_path("dovetail", appauthor=False, opinion=False)
            else:
                found = platformdirs.user_config_path("dovetail", appauthor=False, roaming=True)
        except RuntimeError:
            return None
    return found if found.is_absolute() else None  # older versions of platformdirs leave "~" for a user without a home


def check_target(path: Path) -> None:
    """Raise `UsageError` for a path that is a folder, a device, a pipe or `-`, or whose folder does not exist."""
    if path == Path("-"):  # what other programs take for standard output would be a file that is hard to delete
        raise UsageError("'-' cannot be written: files are written whole, not to standard output", hint="accepted: a file's name")
    if path.exists() and not path.is_file():
        what = "folder" if path.is_dir() else "device or a pipe"
        raise UsageError(f"{str(path)!r} cannot be written: it is a {what}", hint="accepted: a file, or a new name")
    if not path.parent.is_dir():
        raise UsageError(f"{str(path)!r} cannot be written: the folder {str(path.parent)!r} does not exist", hint="make it first")


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content becomes the file `path` when the block ends, and which is deleted when the block raises.

    A link is followed: the file that it points to is replaced. Raises what `check_target` raises, and `OSError` that names
    `path`.
    """
    check_target(path)
    target = path.resolve()
    # Mode "x" creates a file and never follows a link that somebody planted; unlike mkstemp it leaves the mode to the umask.
    unfinished = target.with_name(f".dovetail-{os.urandom(8).hex()}")
    try:
        stream = open(unfinished, "xb")  # noqa: SIM115  # closed below; a file that was there before must not be deleted
        try:
            with stream:
                yield stream
            os.replace(unfinished, target)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        # Errors about another file, which is read meanwhile, keep its name.
        if error.filename in (None, str(unfinished)):
            error.filename, error.filename2 = str(path), None
        raise


def write_file(path: Path, content: bytes | str) -> None:
    """Write bytes, or text as UTF-8, as `written_whole` does."""
    with written_whole(path) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
