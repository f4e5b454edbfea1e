"""Iterations of a sub-graph in the memory of a device's request: copies and checks take longer than a small sub-graph."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.devices.contract import StagedRun
from dovetail.devices.work_budget import RUNNING
from dovetail.graph.graph import Node
from dovetail.planning.held import check_bytes
from dovetail.planning.plan import Plan

__all__ = ["Counts", "Layout", "StagedIterations"]

Array = NDArray[Any]
Pair = tuple[Array, Array]
"""Where to write, and what."""

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
    from where inputs are written; `carries` write them there. `unread` are the inputs to which outputs are carried that no step
    reads: the plan may still depend on their types.
    """

    counts: Counts
    run: Callable[[], object]
    starts: tuple[tuple[Array, int], ...]
    given: tuple[tuple[Array, int], ...]
    scans: tuple[tuple[Array, int], ...]
    outputs: tuple[Array | int, ...]
    saves: tuple[Pair, ...]
    carries: tuple[Pair, ...]
    unread: tuple[tuple[Array, int], ...]

    def keeps_types(self, values: Sequence[Array]) -> bool:
        """Whether the types of carried values stay those of these inputs."""
        return all((result.shape, result.dtype) == (values[slot].shape, values[slot].dtype) for result, slot in self.unread)

    @staticmethod
    def of(plan: Plan, staged: StagedRun, counts: Counts) -> "Layout | None":
        """None where an output is an argument of an earlier iteration, or the type of what is carried changes."""
        (step,) = plan.steps
        places = dict(zip(step.reads, staged.inputs, strict=True))
        found = dict(zip(step.writes, staged.outputs, strict=True))
        leading, end = len(plan.outputs) - counts.state - counts.stacked, counts.fixed + counts.state + counts.scanned
        outputs, saves, carries = list[Array | int](), list[Pair](), list[Pair]()
        unread = list[tuple[Array, int]]()
        written = [(slot, places[slot]) for slot in range(counts.fixed, counts.fixed + counts.state) if slot in places]
        for number, source in enumerate(plan.outputs):
            own = counts.fixed + number - leading if leading <= number < leading + counts.state else None
            if source is None:
                return None
            if isinstance(source, int) and source not in found:
                if source != own and (own is not None or counts.fixed <= source < end):
                    return None
                outputs.append(source)
                continue
            result: Array = found[source] if isinstance(source, int) else source
            # Values to stack are read before anything is written.
            others = [place for slot, place in written if slot != own or not _are_one(place, result)]
            if number < leading + counts.state and any(np.may_share_memory(place, result) for place in others):
                saves.append((np.empty_like(result), result))
                result = saves[-1][0]
            outputs.append(result)
            if own in places and not _are_one(place := places[own], result):
                if (place.shape, place.dtype) != (result.shape, result.dtype):
                    return None
                carries.append((place, result))
            elif own is not None and own not in places:
                unread.append((result, own))
        lasting = {step.reads[number] for number in staged.lasting}.difference(range(counts.fixed))  # fixed ones may change
        changing = {*range(counts.fixed, end - counts.scanned)}.difference(one for one in outputs if isinstance(one, int))
        scanned = {*range(end - counts.scanned, end)}
        starts = [(place, slot) for slot, place in places.items() if slot not in scanned and slot in lasting | changing]
        given = [(place, slot) for slot, place in places.items() if slot not in scanned | lasting | changing]
        scans = [(place, slot) for slot, place in places.items() if slot in scanned]
        rows = tuple(starts), tuple(given), tuple(scans)
        return Layout(counts, staged.run, *rows, tuple(outputs), tuple(saves), tuple(carries), tuple(unread))


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
