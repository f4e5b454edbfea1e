"""Locks that Ctrl-C and forks leave free, and cached properties without one."""

import functools
import os
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["Condition", "Lock", "RLock", "cached_property", "in_forked_processes"]

T = TypeVar("T")

_CALLS: "WeakKeyDictionary[Any, Callable[[Any], object]]" = WeakKeyDictionary()


def in_forked_processes(owner: T, call: Callable[[T], object]) -> T:
    """Have `call(owner)` called in each process that is forked while `owner` lives: threads of this one do not exist there.

    What they hold stays taken there, and whoever waits for them does so for ever. Returns `owner`.
    """
    _CALLS[owner] = call
    return owner


def _forked() -> None:
    for owner, call in [*_CALLS.items()]:
        call(owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _free(lock: Any) -> None:
    lock._at_fork_reinit()  # of CPython, which does the same with the locks of `logging`


if sys.version_info[:2] == (3, 14):
    from _thread import RLock as _RLock

    class _Lock(_RLock):  # type: ignore[misc]  # final in typeshed only
        """For `with` statements. Python 3.14 can handle a signal after it has entered one and before it would leave it.

        The lock then stays locked (github.com/python/cpython/issues/148874, mended in 3.15). Not after an `__enter__` in Python:
        there, one call takes the lock and notes it, and no signal is handled between the two. A thread can take it twice.
        """

        def __enter__(self, blocking: bool = True, timeout: float = -1) -> bool:
            taken: list[bool] = []
            try:
                taken.extend(map(self.acquire, (blocking,), (timeout,)))
            except BaseException:
                if taken:
                    self.release()
                raise
            return True

else:
    _Lock = threading.Lock


def Lock() -> "threading.Lock":
    """A lock of requests and caches, for `with` statements."""
    return in_forked_processes(_Lock(), _free)


def RLock() -> "threading.RLock":
    """One that a thread can take again."""
    return in_forked_processes(threading.RLock(), _free)


def Condition() -> threading.Condition:
    """One for which nobody waits in a forked process."""
    return in_forked_processes(threading.Condition(), _free)


if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property(functools.cached_property):
        """As in Python 3.12. That of 3.11 has one lock for all objects of a class: a plan would wait for those of other threads,
        and in a process that is forked meanwhile for ever.
        """

        def __init__(self, func: Callable[[Any], Any]) -> None:
            super().__init__(func)
            self.lock = nullcontext()
