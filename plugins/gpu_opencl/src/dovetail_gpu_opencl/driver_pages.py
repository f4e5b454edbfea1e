"""Gives pages of drivers' libraries back to the system once they are loaded.

A driver that runs its initializers touches most of its compiler, 60 MB with two PoCLs, which a process does not need that finds
its kernels in the cache. The pages are those of files: what is needed is mapped again when it is used, 64 KB for each fault.
"""

import ctypes
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

__all__ = ["give_back", "giving_back"]

_SELF = Path("/proc/self")
_FROM_FILE, _HELD = 1 << 61, 3 << 62
"""Bits of an entry of `pagemap`: the page is that of the file; it is in memory or swapped out."""


@contextmanager
def giving_back() -> Iterator[None]:
    """Give back the pages of libraries that the `with` statement loads. Does nothing on systems other than Linux."""
    before = {path for _, _, path in _libraries()}
    yield
    for start, end, path in _libraries():
        if path not in before:
            give_back(start, end)


def give_back(start: int, end: int) -> bool:
    """Give back the pages of a private mapping of a file. False where the system refuses, or one of them was changed."""
    try:
        with (_SELF / "pagemap").open("rb", buffering=0) as file:
            file.seek(start // mmap.PAGESIZE * 8)
            pages = np.frombuffer(file.read((end - start) // mmap.PAGESIZE * 8), np.uint64)
    except OSError:
        return False
    # The loader writes addresses into some pages that it makes read-only then: these are nowhere else.
    if len(pages) * mmap.PAGESIZE != end - start or ((pages & _HELD != 0) & (pages & _FROM_FILE == 0)).any():
        return False
    advise = ctypes.CDLL(None).madvise
    return bool(advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED) == 0)


def _libraries() -> list[tuple[int, int, str]]:
    """The parts of libraries that the process maps privately and may not write: first and last address, and path."""
    if sys.platform != "linux":
        return []
    try:
        lines = (_SELF / "maps").read_text().splitlines()
    except OSError:  # a sandbox without /proc
        return []
    fields = [line.split(None, 5) for line in lines]
    found = [(f[0], f[5]) for f in fields if len(f) == 6 and f[1] in ("r-xp", "r--p") and ".so" in f[5]]
    spans = [(*span.split("-"), path) for span, path in found]
    return [(int(start, 16), int(end, 16), path) for start, end, path in spans]
