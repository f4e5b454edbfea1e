"""Gives pages of drivers' libraries back to the system once they are loaded.

A driver that runs its initializers touches most of its compiler, 60 MB with two PoCLs, which a process does not need that finds
its kernels in the cache; a context of PoCL touches 20 MB of it again. The pages are those of files: what is needed is mapped
again when it is used, 64 KB for each fault.
"""

import ctypes
import functools
import mmap
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["first_context", "give_back", "giving_back", "load_apart"]

_SELF = Path("/proc/self")
_FROM_FILE, _HELD = 1 << 61 - 56, 3 << 62 - 56
"""Bits in the last byte of an entry of `pagemap`: the page is that of the file; it is in memory or swapped out."""
_LARGE = 1 << 19
"""Bytes of a part of a library from which on looking at its pages pays."""
_VENDORS = Path("/etc/OpenCL/vendors")
"""Where the loader finds the names of drivers' libraries, unless a variable of the environment says something else."""
_OTHERS = ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH")
_given: set[str] = set()
"""The paths of libraries whose pages were given back."""
_contexts: set[str] = set()
"""The kinds of devices for which there was a context."""


@contextmanager
def giving_back() -> Iterator[None]:
    """Give back the pages of libraries that the `with` statement loads, and of those whose pages were given back before.

    Does nothing on systems other than Linux.
    """
    before = {path for _, _, path in _libraries()} - _given
    yield
    for start, end, path in _libraries():
        if path not in before:
            give_back(start, end)
            _given.add(path)


def load_apart() -> None:
    """Load each PoCL of the system before the loader loads all drivers, so that never two compilers are in memory at once.

    Not where the loader looks elsewhere: by a variable of the environment, or as part of conda.
    """
    is_conda = (Path(sys.prefix) / "conda-meta").is_dir()
    if sys.platform != "linux" or is_conda or any(name in os.environ for name in _OTHERS):
        return
    for file in sorted(_VENDORS.glob("*.icd")) if _VENDORS.is_dir() else ():
        with suppress(OSError), giving_back():  # the loader has its own opinion of a library that cannot be loaded
            if "pocl" in (name := file.read_text(encoding="utf-8", errors="replace").strip()):
                ctypes.CDLL(name)


@contextmanager
def first_context(kind: str) -> Iterator[None]:
    """As `giving_back`, where the `with` statement creates the process's first context of a CPU: later ones touch little more."""
    if kind != "CPU" or kind in _contexts:
        yield
        return
    _contexts.add(kind)
    with giving_back():
        yield


def give_back(start: int, end: int) -> bool:
    """Give back the pages of a private mapping of a file. False where the system refuses, or one of them was changed."""
    try:
        with (_SELF / "pagemap").open("rb", buffering=0) as file:
            file.seek(start // mmap.PAGESIZE * 8)
            pages = np.frombuffer(file.read((end - start) // mmap.PAGESIZE * 8), np.uint8)[7::8]
    except OSError:
        return False
    # The loader writes addresses into some pages that it makes read-only then: these are nowhere else.
    if len(pages) * mmap.PAGESIZE != end - start or (pages[pages & _FROM_FILE == 0] & _HELD).any():
        return False
    return bool(_advise()(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED) == 0)


@functools.cache
def _advise() -> Any:
    return ctypes.CDLL(None).madvise


def _libraries() -> list[tuple[int, int, str]]:
    """The large parts of libraries that the process maps privately and may not write: first and last address, and path."""
    if sys.platform != "linux":
        return []
    try:
        lines = (_SELF / "maps").read_text().splitlines()
    except OSError:  # a sandbox without /proc
        return []
    fields = [line.split(None, 5) for line in lines if ".so" in line and (" r-xp " in line or " r--p " in line)]
    spans = [(*f[0].split("-"), f[5]) for f in fields]
    found = [(int(start, 16), int(end, 16), path) for start, end, path in spans]
    return [(start, end, path) for start, end, path in found if end - start >= _LARGE]
