"""Freed memory is kept for later requests: getting fresh pages takes longer than copying a tensor into them."""

import ctypes
import os
import platform

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`."""

_LARGEST_BLOCK = 32 * 2**20
"""The largest that glibc accepts; it maps larger blocks one by one and returns them at once."""

_LARGEST_INT = 2**31 - 1
"""Parameters are C's `int`; ctypes would cut larger numbers."""


def keep_freed_memory(size: int) -> bool:
    """Let the C library keep up to `size` bytes that are free, in place of 128 KiB. Returns whether it does.

    Only glibc can. What the user set by `MALLOC_TRIM_THRESHOLD_` or `MALLOC_MMAP_THRESHOLD_` is left as it is.
    """
    if platform.libc_ver()[0] != "glibc" or {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"} & os.environ.keys():
        return False
    library = ctypes.CDLL(None)
    return bool(library.mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK) and library.mallopt(_TRIM_THRESHOLD, min(size, _LARGEST_INT)))
