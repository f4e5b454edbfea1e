"""A pause of Python's garbage collector, which planning and binding would otherwise start again and again for nothing."""

import gc
import os
import sys
from types import TracebackType

from dovetail.locks import Lock

__all__ = ["COLLECTOR_PAUSE", "CollectorPause"]

_MANY = 50_000
"""New objects from which on the collector does not look at them after the pause: those of plans of thousands of nodes, which
are kept, and which hardly any cycle connects. It would take 6 % of the time of such a plan."""

_OWN = 1_000
"""More objects than an interpreter itself has frozen (Python 3.12.1: 375), and fewer than `gc.freeze` freezes in any program."""


class CollectorPause:
    """In a `with` statement: no automatic collection, in any thread. Pauses of several threads end with the last of them.

    A plan makes ten thousand objects and keeps them. Because it makes so many, the collector runs, and at times looks at all
    objects of the process: that took a third of the time of a plan.
    """

    def __init__(self) -> None:
        self._lock, self._pauses, self._was_on, self._modules = Lock(), 0, False, 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._pauses:
                self._was_on, self._modules = gc.isenabled(), len(sys.modules)
                gc.disable()
            self._pauses += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        with self._lock:
            self._pauses -= 1
            if not self._pauses and self._was_on:
                # Modules and large plans stay: what is new moves to the oldest generation, as the next collections would do in
                # 15 ms and more.
                is_kept = len(sys.modules) > self._modules or gc.get_count()[0] > _MANY
                if is_kept and gc.get_freeze_count() < _OWN:
                    gc.freeze()
                    gc.unfreeze()
                gc.enable()

    def forget(self) -> None:
        """End all pauses in a forked process, which has none of its parent's threads."""
        if self._pauses and self._was_on:
            gc.enable()
        self.__init__()  # type: ignore[misc]  # the lock may be taken by a thread that is not there


COLLECTOR_PAUSE = CollectorPause()
"""That of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=COLLECTOR_PAUSE.forget)
