"""Uploads of large inputs: threads copy parts of them to locked memory, from where the device takes each as soon as it is there.

The driver copies by one thread: 19 MB in 1.1 ms or more on the host of an H100, where these take 0.6 ms.
"""

import functools
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from dovetail_gpu_opencl.memory import pinned

__all__ = ["STAGED", "Staging"]

Bytes = NDArray[np.uint8]

STAGED = 1 << 24
"""Bytes from which on threads are faster than the driver."""
_THREADS, _PARTS = 4, 2
"""Parts of each thread, one after the other."""
_PAGE = 4096
_OWN_CACHE = 1 << 21
"""Bytes that the cache of one core holds."""


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, "dovetail-upload")


@functools.cache
def _elsewhere() -> Bytes:
    return np.empty((_THREADS, _OWN_CACHE), np.uint8)


class Staging:
    """Locked memory for one input of a request. One upload at a time; the next one begins after the queue was waited for."""

    def __init__(self, context: Any, queue: Any, nbytes: int) -> None:
        self._queue = queue
        self._memory = pinned(context, queue, (nbytes,), np.dtype(np.uint8))
        self._step = -(-nbytes // (_THREADS * _PARTS) // _PAGE) * _PAGE

    def upload(self, buffer: Any, array: NDArray[Any]) -> list[Any]:
        """Enqueue the copy of a C-contiguous array of `nbytes`; the events of its parts, which the caller keeps until the end.

        Only the calling thread enqueues: several would wait for each other in the driver.
        """
        source, events = array.reshape(-1).view(np.uint8), []
        waiting, copied = deque(range(_THREADS)), SimpleQueue[int]()
        copy = functools.partial(self._copy_parts, source, waiting, copied.put)
        try:
            for _ in range(_THREADS):
                _pool().submit(copy)
        except RuntimeError:  # the process may have no more threads: those that are there copy, and this one
            for _ in range(_THREADS):
                copy()
        for _ in range(0, source.size, self._step):
            start = copied.get()
            part = self._memory[start : start + self._step]
            events.append(cl.enqueue_copy(self._queue, buffer, part, dst_offset=start, is_blocking=False))
            self._queue.flush()
        return events

    def _copy_parts(self, source: Bytes, waiting: deque[int], copied: Callable[[int], None]) -> None:
        """Copy the parts of the next of the threads that wait, if one does."""
        try:
            thread = waiting.popleft()
        except IndexError:  # the thread that uploads has copied them, because not every thread could be started
            return
        for start in range(thread * self._step, source.size, _THREADS * self._step):
            np.copyto(self._memory[start : start + self._step], source[start : start + self._step])
            copied(start)
        # The device reads what a core has just written out of that core's own cache, at a tenth of the speed. Writing as much
        # elsewhere moves it to the cache of all cores.
        np.copyto(_elsewhere()[thread, : source.size], source[:_OWN_CACHE])
