"""Handlers of signals and oneDNN's kernels: those that use the heap as their stack.

oneDNN multiplies matrices that it does not pack first (`jit_avx512_common_gemm_f32`, `jit_avx_gemm_f32`; as `gemm:jit` and in
recurrent layers) by kernels that point the stack pointer at the start of a workspace on the heap, if the sum has more than 84
products. A handler that runs on the interrupted stack then overwrites what lies before the workspace. Python's handlers, as most
others, run on the alternate stack of their thread where there is one: each thread that calls oneDNN gets one, and the threads of
OpenMP get no signals.
"""

import ctypes
import mmap
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

__all__ = ["SignalStack", "no_signals"]

_CONCERNED = sys.platform == "linux" and os.uname().machine == "x86_64"
_BYTES = 1 << 16
"""A frame has the registers, 11 KiB of them with AMX. Pages that no handler touches take no memory."""
_DISABLED = 2
_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGABRT")
"""Signals of the thread itself, which end the process where they are blocked: no handler would report them."""
_MASK_BYTES, _BLOCK, _SET = 128, 0, 2
"""Bytes of Linux's `sigset_t`, SIG_BLOCK and SIG_SETMASK."""
_OTHERS = (~sum(1 << getattr(signal, name) - 1 for name in _FAULTS if hasattr(signal, name)) % (1 << 64)).to_bytes(8, "little")
_OTHERS += bytes(_MASK_BYTES - len(_OTHERS))
"""All signals but those."""


@cache
def _function(name: str) -> Callable[..., int]:
    found: Callable[..., int] = ctypes.PyDLL(None)[name]
    return found


class _Stack(ctypes.Structure):
    """`stack_t` of sigaltstack(2)."""

    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


class SignalStack:
    """The alternate stack of the thread that makes this object, until the object goes. A stack that is there is kept."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        if not _CONCERNED:
            return
        self._set = _function("sigaltstack")
        found = _Stack()
        if self._set(None, ctypes.byref(found)) == 0 and found.flags & _DISABLED:
            self._memory = mmap.mmap(-1, _BYTES)
            # Here, because an interpreter that ends empties this module before the last threads' objects are freed.
            self._none = ctypes.byref(_Stack(None, _DISABLED, 0))
            start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
            self._set(ctypes.byref(_Stack(start, 0, _BYTES)), None)

    def __del__(self) -> None:
        if self._memory is not None:  # threads delete their objects themselves
            self._set(self._none, None)


@contextmanager
def no_signals() -> Iterator[None]:
    """Block the signals that others send to this thread, and with it to the threads that it starts meanwhile.

    By the system's function: `signal.pthread_sigmask` takes 0.1 ms to make Python's sets of them.
    """
    if not _CONCERNED:
        yield
        return
    change, before = _function("pthread_sigmask"), ctypes.create_string_buffer(_MASK_BYTES)
    change(_BLOCK, _OTHERS, before)
    try:
        yield
    finally:
        change(_SET, before, None)
