"""A second thread: oneDNN compiles without Python's lock, so the calling thread can go on meanwhile."""

import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Generic, TypeVar

__all__ = ["Helper"]

FEW = 2
"""Items that wait, up to which a second thread, which takes 0.1 ms to start, does not help."""

T = TypeVar("T")


class Helper(Generic[T]):
    """Calls `work` for items on a second thread, unless `threads` is 1, while the body of a `with` statement adds them.

    At its end the calling thread works on those that wait, too. It raises what was raised first; the rest is left then.
    """

    def __init__(self, work: Callable[[T], object], threads: int) -> None:
        self._work, self._helps = work, threads > 1
        # Not a queue: to import that module takes 2 ms of a process's first inference.
        self._waiting, self._ready = deque[T | None](), threading.Semaphore(0)
        self._failed: list[BaseException] = []
        self._thread: threading.Thread | None = None

    def add(self, item: T) -> None:
        """Work on the item now or later."""
        self._put(item)
        if self._helps and self._thread is None and len(self._waiting) > FEW:
            self._thread = threading.Thread(
                target=copy_context().run, args=(self._run, True), name="dovetail-onednn", daemon=True
            )
            self._thread.start()

    def _put(self, item: T | None) -> None:
        self._waiting.append(item)
        self._ready.release()

    def _run(self, waits: bool) -> None:
        while not self._failed and self._ready.acquire(waits):
            item = self._waiting.popleft()
            if item is None:
                return
            try:
                self._work(item)
            except BaseException as error:
                self._failed.append(error)

    def __enter__(self) -> "Helper[T]":
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if error is not None:
            self._failed.append(error)
        self._run(False)
        if self._thread is not None:
            self._put(None)
            self._thread.join()
        if self._failed and error is None:
            raise self._failed[0]
