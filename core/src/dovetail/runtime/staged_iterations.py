"""Iterations of a sub-graph in the memory of a device's request: copies and checks take longer than a small sub-graph."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.devices.work_budget import RUNNING
from dovetail.graph.graph import Node
from dovetail.planning.held import check_bytes
from dovetail.runtime.control_node import Pair
from dovetail.runtime.staged_plan import StagedPlan

__all__ = ["Counts", "Layout", "StagedIterations"]

Array = NDArray[Any]

_FIRST = 1 << 16
"""Bytes for which stacks have room at first."""

_AT_ONCE = 1 << 24
"""The same where it is known how many iterations may follow: memory that nothing is written to costs nothing."""


class Counts(NamedTuple):  # a key that is made for each run of a node
    """How many arguments a sub-graph has of each kind, and how many of its last outputs are stacked."""

    fixed: int
    state: int
    scanned: int
    stacked: int


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where the values of a sub-graph are in a request.

    Arrays in `starts` are written once, those in `given` before each iteration, from the value of an input; those in `scans`
    from a slice of it. `outputs` has the number of an input in place of an output that is that input. `saves` copy outputs away
    from where inputs are written; `carries` write them there.
    """

    counts: Counts
    run: Callable[[], object]
    starts: tuple[tuple[Array, int], ...]
    given: tuple[tuple[Array, int], ...]
    scans: tuple[tuple[Array, int], ...]
    outputs: tuple[Array | int, ...]
    saves: tuple[Pair, ...]
    carries: tuple[Pair, ...]

    @staticmethod
    def of(plan: StagedPlan, values: Sequence[Array], counts: Counts) -> "Layout | None":
        """None where an output is an argument of an earlier iteration, or the type of what is carried changes."""
        places: dict[int, list[Array]] = {}
        for slot, place, _ in plan.places:
            places.setdefault(slot, []).append(place)
        leading, end = len(plan.outputs) - counts.state - counts.stacked, counts.fixed + counts.state + counts.scanned
        outputs, saves, carries = list[Array | int](), list[Pair](), list[Pair]()
        written = [(slot, one) for slot in range(counts.fixed, counts.fixed + counts.state) for one in places.get(slot, ())]
        for number, result in enumerate(plan.outputs):
            own = counts.fixed + number - leading if leading <= number < leading + counts.state else None
            if isinstance(result, int):
                if result != own and (own is not None or counts.fixed <= result < end):
                    return None
                outputs.append(result)
                continue
            # Values to stack are read before anything is written.
            others = [place for slot, place in written if slot != own or not _are_one(place, result)]
            if number < leading + counts.state and any(np.may_share_memory(place, result) for place in others):
                saves.append((np.empty_like(result), result))
                result = saves[-1][0]
            outputs.append(result)
            if own is not None:
                if (values[own].shape, values[own].dtype) != (result.shape, result.dtype):  # also of one that nothing reads
                    return None
                carries += [(place, result) for place in places.get(own, ()) if not _are_one(place, result)]
        changing = {*range(counts.fixed, end - counts.scanned)}.difference(one for one in outputs if isinstance(one, int))
        starts, given, scans = (list[tuple[Array, int]]() for _ in range(3))
        for slot, place, is_lasting in plan.places:
            stays = (is_lasting and slot >= counts.fixed) or slot in changing  # fixed ones may change
            (scans if end - counts.scanned <= slot < end else starts if stays else given).append((place, slot))
        rows = tuple(starts), tuple(given), tuple(scans)
        return Layout(counts, plan.run, *rows, tuple(outputs), tuple(saves), tuple(carries))


def _are_one(one: Array, other: Array) -> bool:
    return (one.ctypes.data, one.shape, one.dtype) == (other.ctypes.data, other.shape, other.dtype)


class StagedIterations:
    """See `dovetail.graph.graph.Iterations`. `values` are those of the plan's inputs, those to scan whole."""

    def __init__(
        self, node: Node, limit: int, layout: Layout, values: Sequence[Array], stacked: Sequence[bool], most: int | None
    ) -> None:
        self._node, self._limit, self._most = node, limit, most
        self._run, self._saves, self._carries = layout.run, layout.saves, layout.carries
        for place, slot in layout.starts:
            place[...] = values[slot]
        self._given = [(place, values[slot]) for place, slot in layout.given]
        self._scanned = [(place, values[slot]) for place, slot in layout.scans]
        counts = layout.counts
        found = [values[one] if isinstance(one, int) else one for one in layout.outputs]
        after = len(found) - counts.stacked
        self.outputs = found[: after - counts.state]
        self._state = found[after - counts.state : after]
        self._wanted = [one if is_wanted else None for one, is_wanted in zip(found[after:], stacked, strict=True)]
        self._each = sum(one.nbytes for one in self._wanted if one is not None)
        self._stacks: list[Pair] = []
        self._done, self._room = 0, 0 if any(stacked) else -1

    def __call__(self) -> None:
        """Raises `OutOfMemory` naming the node when the stacked values exceed the limit."""
        if (budget := RUNNING.budget) is not None and budget.deadline is not None:
            budget.check(self._node)
        done = self._done
        if done == self._room:
            self._grow()
        for place, value in self._given:
            place[...] = value
        for place, value in self._scanned:
            place[...] = value[done]
        self._run()
        for place, value in self._saves:
            place[...] = value
        for stack, value in self._stacks:
            stack[done] = value
        for place, value in self._carries:
            place[...] = value
        self._done = done + 1

    def _grow(self) -> None:
        each, most = max(1, self._each), self._most
        check_bytes(self._node, (self._done + 1) * each, self._limit)
        room = max(2 * self._done, _FIRST // each, 1)
        if most is not None and (room >= most or most * each <= _AT_ONCE):
            room = most
        room = max(min(room, self._limit // each), self._done + 1)
        before, self._stacks, self._room = self._stacks, [], room
        for number, value in enumerate(one for one in self._wanted if one is not None):
            stack = np.empty((room, *value.shape), value.dtype)
            if before:
                stack[: self._done] = before[number][0]
            self._stacks.append((stack, value))

    def results(self) -> tuple[list[Array], list[Array | None]]:
        """See `dovetail.graph.graph.Iterations`."""
        stacks = iter([stack if self._done == self._room else stack[: self._done].copy() for stack, _ in self._stacks])
        return [one.copy() for one in self._state], [None if one is None else next(stacks) for one in self._wanted]
