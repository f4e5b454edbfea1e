"""Threads that run machine code and no Python, which start and end without its lock."""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from dovetail_cpu_onednn.signals import no_signals

__all__ = ["NativeThread", "begins_threads"]

_running: set["NativeThread"] = set()
"""Those that have not ended: an interrupt may keep their owner from waiting for them, and the memory that they use must stay."""

_NONE = -1
"""No result of machine code, which returns 0 or more."""


@cache
def _functions() -> tuple[Callable[..., int], Callable[..., int]] | None:
    """Those that start a thread, and wait for its end without Python's lock; None where the system has others."""
    try:
        return ctypes.PyDLL(None)["pthread_create"], ctypes.CDLL(None)["pthread_join"]
    except (AttributeError, TypeError):
        return None


def begins_threads() -> bool:
    """Whether `NativeThread.start` may be called."""
    return _functions() is not None


class NativeThread:
    """A thread that is still to be started. It gets no signals, and `kept` stays until it has ended."""

    def __init__(self, kept: Any) -> None:
        self._kept, self._handle = kept, ctypes.c_size_t()

    @property
    def is_running(self) -> bool:
        """Whether it was started and not waited for."""
        return bool(self._handle.value)

    def start(self, code: int, argument: int) -> bool:
        """Call the function at `code` with the argument on the thread; False where the system has no thread for it."""
        functions = _functions()
        assert functions is not None
        _running.add(self)
        with no_signals():
            status = functions[0](ctypes.byref(self._handle), None, ctypes.c_void_p(code), ctypes.c_void_p(argument))
        if status:
            self._handle.value = 0
            _running.discard(self)
        return not status

    def join(self) -> None:
        """Wait for its end; other threads of Python run meanwhile."""
        functions, result = _functions(), ctypes.c_int64(_NONE)
        assert functions is not None
        try:
            functions[1](ctypes.c_size_t(self._handle.value), ctypes.byref(result))
        finally:  # mostly an interrupt comes while this waits, and is raised then
            if result.value != _NONE:
                self._handle.value = 0
                _running.discard(self)
