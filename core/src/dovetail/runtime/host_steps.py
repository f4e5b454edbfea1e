"""Runs the steps on the host that follow the parts of a plan; shapes that return are looked up once for all nodes."""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.devices.work_budget import RUNNING
from dovetail.evaluate.context import node_context
from dovetail.graph.graph import Node
from dovetail.graph.types import TensorType
from dovetail.planning.plan import HostStep, Source
from dovetail.runtime.host_node import HostNode, Kind

if TYPE_CHECKING:
    from dovetail.runtime.control_node import RunsBody

__all__ = ["HostSteps", "Recorded"]

_KEPT = 512
"""Shapes of a plan's inputs for which the types of results are kept."""

_LONG = 0.02
"""Seconds from which on nodes are called one by one, so that long ones are on a thread; see `Pace`."""

_Shapes = tuple[tuple[int, ...] | None, ...]

Recorded = Callable[[Callable[[], list[Any]]], list[Any]]
"""Runs a node: calls what it is given."""

_Known = tuple[tuple[Source, ...], Callable[..., Any], Kind, int]
"""The arguments of a node's reference, the reference, the type of its result, and the slot for it."""


class HostSteps:
    """The calls of steps on the host, in one request. `inputs` is how many the plan has; `bodies` run the steps' sub-graphs.

    `recorded` gives what runs a node where runs are recorded.
    """

    def __init__(
        self,
        steps: Sequence[HostStep],
        bodies: "Sequence[Sequence[RunsBody]]",
        inputs: int,
        recorded: Callable[[Node], Recorded] | None,
    ) -> None:
        self._calls = [(step, _call(step, runners, recorded)) for step, runners in zip(steps, bodies, strict=True)]
        self._inputs = inputs
        # By shapes of the inputs: the first nodes, as far as the types of their results follow from these alone.
        self._known: dict[_Shapes, list[_Known]] = {}
        self._may_know = isinstance(self._calls[0][1], HostNode)

    def __call__(self, slots: list[Any]) -> None:
        """Run the steps on the values in these slots, and put their results there. Raises as their nodes."""
        budget = RUNNING.budget
        if not self._may_know or (budget is not None and budget.deadline is not None):
            self._run(slots, 0)
            return
        shapes = tuple([v.shape if type(v) is np.ndarray else None for v in slots[: self._inputs]])
        known = self._known.get(shapes)
        if known is None:
            self._run(slots, 0)
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[shapes] = self._found()
        else:
            started = perf_counter()
            number = self._run_known(slots, known)
            if perf_counter() - started > _LONG:
                self._known.pop(shapes)  # of these alone: a busy machine makes any run long
            self._run(slots, number)

    def _run_known(self, slots: list[Any], known: Sequence[_Known]) -> int:
        """Run the first nodes, whose results have these types; how many. A node that gives something else is not counted."""
        number = 0
        try:
            for reads, reference, kind, slot in known:
                given = reference(*[slots[source] if type(source) is int else source for source in reads])
                if type(given) is not np.ndarray or (given.dtype, given.shape) != kind:
                    break
                slots[slot] = given
                number += 1
        except (Exception, SystemExit):
            values = [slots[source] if isinstance(source, int) else source for source in known[number][0]]
            with node_context(self._calls[number][0].node, (None if v is None else TensorType.of(v) for v in values)):
                raise
        return number

    def _found(self) -> list[_Known]:
        """The first nodes, as they ran last."""
        found = list[_Known]()
        for step, call in self._calls:
            if not isinstance(call, HostNode) or call.kind is None:
                break
            found.append((call.reads, call.reference, call.kind, step.writes[0]))
        return found

    def _run(self, slots: list[Any], first: int) -> None:
        budget = RUNNING.budget
        for step, call in self._calls[first:] if first else self._calls:
            if budget is not None and budget.deadline is not None:
                budget.check(step.node)
            results = call(slots)
            writes = step.writes
            if len(writes) == len(results) == 1:
                slots[writes[0]] = results[0]
            else:
                for slot, value in zip(writes, results, strict=True):
                    slots[slot] = value


def _call(
    step: HostStep, bodies: "Sequence[RunsBody]", recorded: Callable[[Node], Recorded] | None
) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """The call that runs a step on the host, with the slots: its outputs."""
    call: Callable[[Sequence[Any]], list[Any]]
    if step.node.op.has_control():
        from dovetail.runtime.control_node import ControlNode  # here, because few plans have such steps

        call = ControlNode(step, bodies)
    else:
        call = HostNode(step)
    if recorded is None:
        return call
    record = recorded(step.node)
    return lambda slots: record(lambda: call(slots))
