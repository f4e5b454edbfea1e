"""Lanes: the requests of one compiled model that may run at the same time, taken by threads that have work."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from dovetail.errors import DovetailError, OutOfMemory
from dovetail.locks import Condition, in_forked_processes
from dovetail.virtual import Part, PartRequest, current_budget

__all__ = ["KEPT", "LOOK", "Lane", "Lanes", "Scheduler", "check_run"]

KEPT = 8
"""The input shapes for which a lane keeps its buffers, unless its user knows how many there are."""


LOOK = 0.05
"""Seconds after which a run that waits looks whether it has to end."""


def check_run(where: str) -> None:
    """Raise `RunCancelled` or `TimeLimitExceeded` when the run of the calling thread has to end."""
    if (budget := current_budget()) is not None:
        budget.check(where)


class Lane:
    """The requests of a part of which one runs at a time, one for each set of input shapes; used by one thread at a time.

    A request that is given other shapes makes all of its buffers again, which on a GPU takes longer than a run.
    """

    def __init__(self, lanes: "Lanes") -> None:
        self.lanes = lanes
        self._requests: dict[tuple[Any, ...], PartRequest] = {}

    def run(self, values: Sequence[Any]) -> list[Any]:
        """Run, and copy the results: the lane is for others afterwards."""
        results = self.forward(values)
        return [np.array(value, copy=True) if isinstance(value, np.ndarray) else value for value in results]

    def forward(self, values: Sequence[Any]) -> Sequence[Any]:
        """Run. The results belong to the lane until its next run for these shapes."""
        try:
            return self._request(values).forward(values)
        except OutOfMemory:
            if len(self._requests) < 2:
                raise
            self.close()  # what other shapes hold may be what is missing
            return self._request(values).forward(values)

    def _request(self, values: Sequence[Any]) -> PartRequest:
        key = tuple(getattr(value, "shape", None) for value in values)
        request = self._requests.pop(key, None) or self.lanes.part.create_infer_request()
        self._requests[key] = request  # the latest used last
        if len(self._requests) > self.lanes.kept:
            _free(self._requests.pop(next(iter(self._requests))))
        return request

    def close(self) -> None:
        """Free the requests; the next runs make others."""
        stale, self._requests = self._requests, {}
        for request in stale.values():
            _free(request)


def _free(request: PartRequest) -> None:
    with suppress(DovetailError):  # of a device that is lost
        request.close()


class Lanes:
    """The lanes of one part, each with buffers for `kept` sets of input shapes.

    `failed` has the reason once the device is no longer used.
    """

    def __init__(self, part: Part, count: int, kept: int = KEPT) -> None:
        self.part, self.count, self.kept = part, count, kept
        self.lanes = [Lane(self) for _ in range(count)]
        self.free = list(self.lanes)
        self.runs = 0
        self.failed = ""


class Scheduler:
    """Gives free lanes to threads, those that wait longest first.

    `in_turn`: of several parts with a free lane the next one in turn, else the first.
    """

    def __init__(self, parts: Sequence[Lanes], in_turn: bool = False) -> None:
        self.parts = list(parts)
        self._in_turn = in_turn
        self._next = 0
        self._changed = Condition()
        self._waiting: list[object] = []
        in_forked_processes(self, Scheduler._have_all_free)

    def _have_all_free(self) -> None:
        self._waiting.clear()
        for part in self.parts:
            part.lanes = [lane if lane in part.free else Lane(part) for lane in part.lanes]
            part.free = list(part.lanes)

    def take(self, suits: Callable[[Lanes], bool] = lambda lanes: True) -> Lane | None:
        """A free lane of a part that has not failed and `suits`, waiting for one; None when no such part is left.

        Raises `RunCancelled` and `TimeLimitExceeded` when the run of the calling thread has to end.
        """
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                while True:
                    usable = [part for part in self.parts if not part.failed and suits(part)]
                    if not usable:
                        return None
                    free = [part for part in usable if part.free]
                    # Who waits longest goes first, unless only others can use what is free.
                    if free and (self._waiting[0] is ticket or len(usable) < len(self.parts)):
                        return self._taken(free)
                    self._changed.wait(LOOK)
                    check_run("its beginning, where it waits for a device")
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def _taken(self, free: Sequence[Lanes]) -> Lane:
        chosen = free[0]
        if self._in_turn:
            order = [*range(self._next, len(self.parts)), *range(self._next)]
            chosen = next(self.parts[i] for i in order if self.parts[i] in free)
            self._next = (self.parts.index(chosen) + 1) % len(self.parts)
        chosen.runs += 1
        return chosen.free.pop()

    def give_back(self, lane: Lane) -> None:
        """The lane is free again."""
        with self._changed:
            lane.lanes.free.append(lane)
            self._changed.notify_all()

    def fail(self, lanes: Lanes, reason: str) -> bool:
        """Use a part no longer, unless it is the last one; False if that was so before, or it is the last."""
        with self._changed:
            if lanes.failed or sum(not part.failed for part in self.parts) < 2:
                return False
            lanes.failed = reason
            self._changed.notify_all()
            return True

    def close(self) -> None:
        """Free the requests of all lanes and close their parts, when nobody runs."""
        for part in self.parts:
            for lane in part.lanes:
                lane.close()
            part.part.close()
