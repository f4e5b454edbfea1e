"""How long a run may take: a deadline and a request to stop, checked between nodes and iterations."""

import math
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from dovetail.errors import RunCancelled, TimeLimitExceeded
from dovetail.graph.graph import Node

__all__ = ["RUNNING", "WorkBudget", "current_budget", "limited"]


class _Running(threading.local):
    budget: "WorkBudget | None" = None


RUNNING = _Running()
"""`RUNNING.budget` is that of the calling thread's run."""


class WorkBudget:
    """The budget of one run; in a `with` statement, that of the calling thread until the statement ends.

    `seconds` count from there; None sets no limit. `cancel` may be called from any thread. Loops over nodes compare `deadline`,
    None or a time of `time.perf_counter`, after each node, and call `check` when it has passed: a call for each node would cost
    more than a small node.
    """

    __slots__ = ("_cancelled", "_outer", "_seconds", "deadline")

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = seconds
        self.deadline: float | None = None
        self._cancelled = False
        self._outer: WorkBudget | None = None

    def __enter__(self) -> "WorkBudget":
        if self._seconds is not None:
            self.deadline = time.perf_counter() + self._seconds
        if self._cancelled:  # after the line above, because another thread may cancel between the two
            self.deadline = -math.inf
        self._outer, RUNNING.budget = RUNNING.budget, self
        return self

    def __exit__(self, *_: object) -> None:
        RUNNING.budget, self._outer = self._outer, None

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Let the next `check` raise `RunCancelled`."""
        self._cancelled = True
        self.deadline = -math.inf

    def check(self, place: Node | str) -> None:
        """Raise `RunCancelled` or `TimeLimitExceeded`, which names the node or another place, when the run has to end."""
        if not self._cancelled and (self.deadline is None or time.perf_counter() <= self.deadline):
            return
        where = place if isinstance(place, str) else f"node {place}"
        if self._cancelled:
            raise RunCancelled(f"the run was cancelled at {where}", hint="start it again")
        hint = "raise the property TIME_LIMIT (seconds), or look for a loop that does not end"
        raise TimeLimitExceeded(f"{where}: the time limit of {self._seconds:g} seconds has passed", hint=hint)


def current_budget() -> WorkBudget | None:
    """The budget of the calling thread's run; None outside a run."""
    return RUNNING.budget


def limited(seconds: float | None) -> AbstractContextManager[Any]:
    """A budget of so many seconds for the `with` statement, unless the calling thread's run has one already."""
    return WorkBudget(seconds) if RUNNING.budget is None else nullcontext()
