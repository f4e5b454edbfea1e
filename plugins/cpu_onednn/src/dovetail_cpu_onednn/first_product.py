"""The kernels of oneDNN's general matrix product, compiled while a model is planned.

Recurrent layers without kernels of their own, such as GRU, build on it. oneDNN compiles all of its kernels in the first product
of a process, whatever that multiplies: 30 to 50 ms in 4 MB of new memory.
"""

import os
import threading
from contextlib import suppress

from dovetail_cpu_onednn.library import library

__all__ = ["begin"]

_begun = threading.Lock()
"""Held from the first call on."""


def begin() -> None:
    """Let a second thread multiply, once in a process: a product that comes meanwhile waits for the kernels in oneDNN."""
    if not _begun.acquire(blocking=False):
        return
    thread = threading.Thread(target=_multiply, name="dovetail-onednn-product")
    with suppress(RuntimeError):  # no more threads: the first product of the run compiles
        thread.start()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=thread.join)  # a new process would wait for its kernels for ever


def _multiply() -> None:
    library().plan_threads(1)
    library().multiply()
