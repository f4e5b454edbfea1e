"""Functions in machine code of x86-64, for instructions that NumPy's builds leave out and Python reaches in no other way."""

import ctypes
import mmap
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

__all__ = ["jump", "loaded"]


def loaded(functions: Sequence[bytes], *features: str) -> list[int] | None:
    """The addresses of functions, of the calling convention of System V.

    None on other processors and systems, those without one of the features, by NumPy's names, and where the system forbids to
    make memory executable.
    """
    if sys.platform != "linux" or os.uname().machine != "x86_64" or not _has(features):
        return None
    code = b"".join(functions)
    size = -(-len(code) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(code)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    # Never writable and executable at once, which some systems forbid.
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(start), ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_EXEC):
        return None
    # Never unmapped, also where Python frees all modules at its end: threads that release its lock may run the code until then.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
    return [start + sum(map(len, functions[:index])) for index in range(len(functions))]


def _has(wanted: Sequence[str]) -> bool:
    """As NumPy knows it, which NPY_DISABLE_CPU_FEATURES can change."""
    for name in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):  # of NumPy 2, of NumPy 1
        try:
            features: dict[str, Any] = import_module(name).__cpu_features__
        except (ImportError, AttributeError):
            continue
        return all(features.get(one) for one in wanted)
    return False


def jump(opcode: str, distance: int) -> bytes:
    """A jump forwards over `distance` bytes, or backwards over itself and so many before it; the opcode as hexadecimal digits."""
    code = bytes.fromhex(opcode)
    return code + (distance if distance > 0 else distance - len(code) - 4).to_bytes(4, "little", signed=True)
