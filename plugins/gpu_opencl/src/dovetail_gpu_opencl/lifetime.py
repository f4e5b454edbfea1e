"""Waits for driver calls at the end of the process, and refuses new ones.

A daemon thread whose driver call returns while the interpreter is being taken down aborts the process: the interpreter ends the
thread inside C++ code that must not be left so.
"""

import atexit
import os
import threading
import time

from dovetail.device import DeviceError
from dovetail_gpu_opencl import fork

__all__ = ["IN_USE"]

_LONGEST = 10.0
"""Seconds that the end of the process waits for runs and builds of daemon threads."""


class _InUse:
    """A context for calls of drivers. Raises `DeviceError` in a forked process, and when this process is ending."""

    def __init__(self) -> None:
        self._threads: list[int] = []  # once for each context that a thread is in: they nest
        self._ending = False
        self._home = os.getpid()

    def __enter__(self) -> None:
        self._threads.append(threading.get_ident())  # before the check, so that `end` sees every thread that has passed it
        try:
            self.check()
        except DeviceError:
            self._threads.remove(threading.get_ident())
            raise

    def check(self) -> None:
        """Raise for a caller within the context, too: between calls that take long."""
        fork.check()
        if self._ending:
            raise DeviceError("the process is ending", hint="join the threads that use OPENCL before the main thread returns")

    def __exit__(self, *_: object) -> None:
        self._threads.remove(threading.get_ident())

    def end(self) -> None:
        """Refuse further calls, and wait for those under way."""
        if os.getpid() != self._home:
            return
        self._ending = True
        # This thread is in no context any more, but an interrupt may have kept it from saying so.
        here, until = threading.get_ident(), time.monotonic() + _LONGEST
        while any(one != here for one in self._threads) and time.monotonic() < until:
            time.sleep(0.001)


IN_USE = _InUse()
atexit.register(IN_USE.end)
