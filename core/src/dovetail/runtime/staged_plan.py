"""Plans whose values have fixed places in memory, for sub-graphs that run again and again: nothing is allocated or looked up."""

from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.devices.contract import StagedRun
from dovetail.planning.plan import HostStep, Plan, Source
from dovetail.protocol import Protocol
from dovetail.runtime.control_node import Pair, RunsBody, StagedNode

__all__ = ["Rest", "StagedPlan", "staged_plan"]

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class StagedPlan:
    """The caller writes inputs into `places`: number of the input, array, and whether runs leave the array as it is.

    An input has a place for each part that needs one, none if nothing reads it. `outputs` has the number of an input in place of
    an output that is that input.
    """

    places: Sequence[tuple[int, Array, bool]]
    outputs: Sequence[Array | int]
    run: Callable[[], object]


class Rest(Protocol):
    """The graph after the steps of a plan."""

    def staged_plan(self, values: Sequence[Any], /) -> StagedPlan | None:
        """The graph planned for such values; None where it cannot be staged."""


def staged_plan(
    plan: Plan, runs: Sequence[StagedRun], bodies: Sequence[Sequence[RunsBody]], rest: Rest | None, values: Sequence[Array]
) -> StagedPlan | None:
    """The plan, whose steps are `runs`, for inputs of the types of `values`. None where a part of it cannot be staged."""
    if plan.open_inputs is not None or any(source is None for source in plan.outputs):
        return None
    tail, calls = () if plan.tail is None else plan.tail.steps, list[tuple[Sequence[Pair], Callable[[], object]]]()
    late = {source for source in (*_read(tail), *(() if rest is None else plan.outputs)) if isinstance(source, int)}
    places = _places(plan, runs, late, values)
    slots: list[Any] = [None] * plan.slots
    for number, place, _ in reversed(places):
        slots[number] = place
    written = {id(place) for _, place, _ in places}
    for step, run in zip(plan.steps, runs, strict=True):
        read = zip(run.inputs, step.reads, strict=True)
        calls.append(([(place, slots[slot]) for place, slot in read if id(place) not in written], run.run))
        _put(slots, step.writes, run.outputs)
    for one, runners in zip(tail, bodies, strict=True):
        node = StagedNode.of(one, runners, slots) if one.node.op.has_control() else None
        if node is None:
            return None
        calls.append(((), node.run))
        _put(slots, one.writes, node.outputs)
    given: list[Any] = [slots[source] if isinstance(source, int) else source for source in plan.outputs]
    outputs: list[Any] = [s if isinstance(s, int) and s < plan.inputs else v for s, v in zip(plan.outputs, given, strict=True)]
    if rest is not None:
        following = rest.staged_plan(given)
        if following is None:
            return None
        calls.append(([(place, given[number]) for number, place, _ in following.places], following.run))
        outputs = [outputs[one] if isinstance(one, int) else one for one in following.outputs]
    is_single = len(calls) == 1 and not calls[0][0]
    return StagedPlan(places, outputs, calls[0][1] if is_single else partial(_run, calls))


def _run(calls: Sequence[tuple[Sequence[Pair], Callable[[], object]]]) -> None:
    for writes, call in calls:
        for place, value in writes:
            place[...] = value
        call()


def _places(
    plan: Plan, runs: Sequence[StagedRun], late: Container[int], values: Sequence[Array]
) -> list[tuple[int, Array, bool]]:
    """Where inputs are written. One that several parts read, or that is read `late`, has a place that no part changes."""
    found: dict[int, list[tuple[Array, bool]]] = {number: [] for number in range(plan.inputs)}
    for step, run in zip(plan.steps, runs, strict=True):
        for number, (slot, place) in enumerate(zip(step.reads, run.inputs, strict=True)):
            if slot < plan.inputs:
                found[slot].append((place, number in run.lasting))
    places = list[tuple[int, Array, bool]]()
    for number, own in found.items():
        if number in late or len(own) > 1:
            own = [one for one in own if one[1]] or [(np.empty(values[number].shape, values[number].dtype), True)]
        places += [(number, *one) for one in own]
    return places


def _read(steps: Sequence[HostStep]) -> Iterator[Source]:
    for step in steps:
        yield from step.reads
        for body in step.bodies:
            yield from body.captures


def _put(slots: list[Any], numbers: Sequence[int], arrays: Sequence[Array]) -> None:
    for number, array in zip(numbers, arrays, strict=True):
        slots[number] = array
