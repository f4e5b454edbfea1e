"""Work on several items at once, on the calling thread and a second one: oneDNN is asked and compiles without Python's lock."""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import copy_context
from typing import TypeVar

__all__ = ["for_each"]

FEW = 4
"""Items up to which a second thread, which takes 0.1 ms to start, does not help."""

T = TypeVar("T")


def for_each(items: Iterable[T], work: Callable[[T], object], threads: int) -> None:
    """Call `work` for each item, from two threads unless `threads` is 1. Raises what it raised first; the rest is left then."""
    waiting, failed = deque(items), list[BaseException]()

    def run() -> None:
        while not failed:
            try:
                item = waiting.popleft()
            except IndexError:  # the other thread took the last one
                return
            try:
                work(item)
            except BaseException as error:
                failed.append(error)

    helps = threads > 1 and len(waiting) > FEW
    helper = threading.Thread(target=copy_context().run, args=(run,), name="dovetail-onednn", daemon=True) if helps else None
    if helper is not None:
        helper.start()
    run()
    if helper is not None:
        helper.join()
    if failed:
        raise failed[0]
