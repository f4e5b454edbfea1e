"""Where pyopencl and PoCL keep what they compile: without a folder that they can write, PoCL has no device and no compiler."""

import atexit
import os
import shutil
import tempfile

__all__ = ["HINT", "provide", "unusable"]

HINT = "set POCL_CACHE_DIR to a folder that can be written and has room, in a tmpfs for example"

_ROOM = 8 << 20
"""Bytes that a disk must have left: one kernel takes PoCL some 100 kB."""


def provide() -> None:
    """Where the user's cache folder cannot be written, or its disk is full: leave pyopencl's cache out, and give PoCL a folder
    that goes with the process. What the environment says already stays. Takes effect before pyopencl is imported.
    """
    if not _is_usable(os.path.join(_home(), "pytools")):
        os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
    if "POCL_CACHE_DIR" not in os.environ and unusable():
        try:
            folder = tempfile.mkdtemp(prefix="dovetail-pocl-")
        except OSError:  # nothing can be written anywhere: kernels that it kept before still run
            return
        os.environ["POCL_CACHE_DIR"] = folder
        atexit.register(_remove, folder, os.getpid())


def unusable() -> str:
    """PoCL's folder, if it cannot be written or its disk is full, else an empty text. PoCL gives no reason then."""
    folder = os.environ.get("POCL_CACHE_DIR") or os.path.join(_home(), "pocl", "kcache")
    return "" if _is_usable(folder) else folder


def _home() -> str:
    return os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")


def _is_usable(folder: str) -> bool:
    """Whether files can be made in the folder, or in the one in which it would have to be made."""
    while not os.path.lexists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    if not os.access(folder, os.W_OK | os.X_OK) or not os.path.isdir(folder):
        return False
    return shutil.disk_usage(folder).free >= _ROOM


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a child
        shutil.rmtree(folder, ignore_errors=True)
