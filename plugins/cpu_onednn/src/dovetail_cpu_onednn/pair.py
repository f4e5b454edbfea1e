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
        self._waiting, self._failed = deque[T](), list[BaseException]()
        self._is_complete = False
        # The second thread takes it to wait for more. Neither a queue, whose module takes 2 ms of a process's first inference to
        # import, nor a semaphore, which takes 5 us for each item.
        self._idle = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, item: T) -> None:
        """Work on the item now or later."""
        self._waiting.append(item)
        if self._thread is not None:
            self._wake()
        elif self._helps and len(self._waiting) > FEW:
            self._idle.acquire()
            self._thread = threading.Thread(target=copy_context().run, args=(self._help,), name="dovetail-onednn", daemon=True)
            try:
                self._thread.start()
            except RuntimeError as error:  # the process may have no more threads: the calling thread does all of it
                if isinstance(error.__context__, KeyboardInterrupt):  # in the middle of start()
                    raise
                self._thread, self._helps = None, False

    def _wake(self) -> None:
        if self._idle.locked():  # only the other thread takes it
            self._idle.release()

    def _help(self) -> None:
        self._run()
        while not self._is_complete:
            self._idle.acquire()
            self._run()

    def _run(self) -> None:
        while not self._failed:
            try:
                item = self._waiting.popleft()
            except IndexError:
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
        try:
            self._run()
        finally:  # an interrupt must not leave the other thread waiting
            self._is_complete = True
            if self._thread is not None:
                self._wake()
                if self._thread.is_alive():  # unless one came while it was started
                    self._thread.join()
        if self._failed and error is None:
            raise self._failed[0]
