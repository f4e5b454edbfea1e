"""Runs a node with sub-graphs again and again: what does not depend on its values is found once."""

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.devices.work_budget import RUNNING
from dovetail.errors import DovetailError, OperatorError, TimeLimitExceeded
from dovetail.evaluate.context import node_context
from dovetail.evaluate.inference import padded
from dovetail.graph.dtype import DType
from dovetail.graph.graph import Graph, Iterations, Node
from dovetail.graph.types import CONTAINERS, TensorType
from dovetail.planning.deferred import separate
from dovetail.planning.held import HeldBytes
from dovetail.planning.plan import Body, HostStep, Source, declared_signature, signature
from dovetail.protocol import Protocol

__all__ = ["ControlNode", "Pair", "RunBody", "RunsBody", "Staged", "StagedNode"]

Pair = tuple[NDArray[Any], NDArray[Any]]
"""Where to write, and what."""

Parts = tuple[Sequence[Any], Sequence[Any], Sequence[NDArray[Any]]]

Staged = tuple[Sequence[Pair], Callable[[], object], Sequence[NDArray[Any]]]
"""Arrays to write before a run, the run, and the outputs after it."""

RunBody = Callable[[Sequence[Any]], list[Any]]
"""Runs a sub-graph with its arguments: its outputs."""


class RunsBody(Protocol):
    """A sub-graph of a node; both methods take the values that it reads from outside."""

    def body(self, node: Node, captured: Sequence[Any], /) -> RunBody:
        """The call for one run of the node."""

    def iterations(
        self, node: Node, limit: int, captured: Sequence[Any], parts: Parts, stacked: Sequence[bool], most: int | None, /
    ) -> Iterations | None:
        """See `RunGraph.iterations`; `parts` are the fixed, carried and scanned arguments."""

    def staged(self, values: Sequence[Any], /) -> Staged | None:
        """The sub-graph with inputs that stay in these arrays, whose content changes: see `PlanRequest.staged`."""


class ControlNode:
    """The calls of a node that runs sub-graphs, in one request; `bodies` are its sub-graphs, in their order."""

    def __init__(self, step: HostStep, bodies: Sequence[RunsBody]) -> None:
        node = step.node
        self._step, self._reads = step, step.reads
        self._bodies = {id(body.graph): (runs, body) for body, runs in zip(step.bodies, bodies, strict=True)}
        self._missing = padded([], node.op.inputs)[len(step.reads) :]
        self._wanted = tuple(map(bool, node.outputs))
        self._by_port = tuple(map(bool, padded(node.outputs, node.op.outputs)))
        self._checked: list[Any] | None = None  # the kinds of the values that were checked last; loops and later runs repeat them

    def __call__(self, slots: Sequence[Any]) -> list[Any]:
        """The outputs that are present, of inputs in these slots.

        Raises `OutOfMemory` naming the node when what the sub-graphs gave, as far as the operator keeps it, exceeds the limit.
        """
        values = _values(self._reads, slots)
        return separate(self._controlled(_RunCounted(self._step, self._bodies, slots, self._by_port), values), values)

    def _controlled(self, run: "_RunCounted", values: Sequence[Any]) -> list[Any]:
        node, wanted = self._step.node, self._wanted
        try:
            self._check(values)
            given = node.op.control(run, *values, *self._missing)
            given = given if isinstance(given, tuple) else (given,)
            if len(given) < len(wanted):
                raise OperatorError(f"control() gave {len(given)} outputs, the node has {len(wanted)}")
        except (Exception, SystemExit) as error:
            self._explain(error)
            raise
        return [*compress(given, wanted)]

    def _explain(self, error: BaseException) -> None:
        """Raise the error with the node; nothing where that is there already."""
        node = self._step.node
        if isinstance(error, TimeLimitExceeded):
            if f"node {node}" not in error.message:  # a node of a sub-graph was running
                error.message += f"; it is in a sub-graph of node {node}"
            return
        with node_context(node):  # here, because few raise
            raise error

    def _check(self, values: Sequence[Any]) -> None:
        """Check the types of inputs, unless they are those of the run before: it takes longer than a small node."""
        kinds = [(v.dtype, v.shape) if isinstance(v, np.ndarray) else type(v) for v in values]
        if kinds != self._checked:
            if all(v is None or isinstance(v, np.ndarray) for v in values):  # containers have no types to check
                self._step.node.op.check([None if v is None else TensorType.of(v) for v in values], len(self._wanted))
            self._checked = kinds


class _RunCounted:
    """Runs sub-graphs, found by their `id`, and counts what they give."""

    __slots__ = ("_bodies", "_held", "_runs", "_slots", "_step", "wanted")

    def __init__(
        self,
        step: HostStep,
        bodies: Mapping[int, tuple[RunsBody, Body]],
        slots: Sequence[Any],
        wanted: Sequence[bool],
    ) -> None:
        self._step, self._bodies, self._slots, self.wanted = step, bodies, slots, wanted
        self._held: HeldBytes | None = None
        self._runs: dict[int, RunBody] = {}  # those that ran: of two branches one does

    def forget(self) -> None:
        """Do not count what sub-graphs gave so far."""
        self._held = None

    def __call__(self, graph: Graph, arguments: Sequence[Any]) -> list[Any]:
        run = self._runs.get(id(graph))
        if run is None:
            runs, body = self._bodies[id(graph)]
            run = self._runs[id(graph)] = runs.body(self._step.node, _values(body.captures, self._slots))
        results = run(arguments)
        if self._held is None:
            self._held = HeldBytes(self._step.node, self._step.limit)
        self._held.add(results)
        return results

    def types(self, graph: Graph, arguments: Sequence[Any]) -> Sequence[TensorType | None]:
        _, body = self._bodies[id(graph)]
        return body.types(signature([*arguments, *_values(body.captures, self._slots)]))

    def iterations(
        self,
        graph: Graph,
        fixed: Sequence[Any],
        state: Sequence[Any],
        scanned: Sequence[NDArray[Any]],
        stacked: Sequence[bool],
        most: int | None,
    ) -> Iterations | None:
        runs, body = self._bodies[id(graph)]
        captured = _values(body.captures, self._slots)
        return runs.iterations(self._step.node, self._step.limit, captured, (fixed, state, scanned), stacked, most)


class StagedNode(ControlNode):
    """A node that runs sub-graphs, of values that stay where they are; `outputs` are arrays that a call writes."""

    def __init__(self, step: HostStep, bodies: Sequence[RunsBody], slots: Sequence[Any], outputs: Sequence[NDArray[Any]]) -> None:
        super().__init__(step, bodies)
        self.outputs, self._slots, self._values = outputs, slots, _values(self._reads, slots)
        self._run = _RunCounted(step, self._bodies, slots, self._by_port)
        self._chosen_graph = step.node.op.chosen_graph
        # By `id` the sub-graphs that took the place of the node, as `Staged` with what is copied after the run.
        self._chosen: dict[int, tuple[Sequence[Pair], Callable[[], object], Sequence[Pair]] | None] = {}

    @staticmethod
    def of(step: HostStep, bodies: Sequence[RunsBody], slots: Sequence[NDArray[Any]]) -> "StagedNode | None":
        """None where the types of its outputs are not known, or where these exceed the limit."""
        node, captured = step.node, {id(body.graph): (body, _values(body.captures, slots)) for body in step.bodies}

        def types(graph: Graph, arguments: Sequence[TensorType | None]) -> Sequence[TensorType | None]:
            body, outer = captured[id(graph)]
            key = declared_signature([*arguments, *map(TensorType.of, outer)])
            return body.types(key) if key is not None else [None] * len(graph.outputs)

        inputs = [None if v is None else TensorType.of(v) for v in _values(step.reads, slots)]
        try:
            node.op.check(inputs, len(node.outputs))
            given = node.op.control_types(types, *padded(inputs, node.op.inputs))
        except DovetailError:  # which the run raises
            return None
        found = [t for t, name in zip(given, node.outputs, strict=False) if name]
        static = [t for t in found if t is not None and t.is_static and not isinstance(t, CONTAINERS)]
        if len(static) < len(step.writes) or any(t.dtype is DType.STRING for t in static):
            return None
        if sum(t.nbytes for t in static) > step.limit:
            return None
        return StagedNode(step, bodies, slots, [np.empty(t.dims, t.dtype.numpy) for t in static])

    def run(self) -> None:
        """Raises as `ControlNode`, and `OperatorError` for results of other types than the operator declares."""
        if (budget := RUNNING.budget) is not None and budget.deadline is not None:
            budget.check(self._step.node)
        try:
            graph = self._chosen_graph(self._values)
            if graph is not None and (chosen := self._chosen.get(id(graph)) or self._in_place(graph)) is not None:
                writes, run, copies = chosen
                for place, value in writes:
                    place[...] = value
                run()
                for place, value in copies:
                    place[...] = value
                return
        except (Exception, SystemExit) as error:
            self._explain(error)
            raise
        self._run.forget()
        for place, value in self._pairs(self._controlled(self._run, self._values)):
            place[...] = value

    def _in_place(self, graph: Graph) -> tuple[Sequence[Pair], Callable[[], object], Sequence[Pair]] | None:
        """A sub-graph in place of the node; None where it cannot be staged."""
        if id(graph) not in self._chosen:
            runs, body = self._bodies[id(graph)]
            staged = runs.staged(_values(body.captures, self._slots))
            self._chosen[id(graph)] = staged and (*staged[:2], self._pairs([*compress(staged[2], self._wanted)]))
        return self._chosen[id(graph)]

    def _pairs(self, results: Sequence[Any]) -> list[Pair]:
        pairs = [(place, np.asarray(value)) for place, value in zip(self.outputs, results, strict=True)]
        for place, value in pairs:
            if value.shape != place.shape or value.dtype != place.dtype:
                with node_context(self._step.node):
                    text = f"control() gave {value.dtype}{[*value.shape]}, control_types() {place.dtype}{[*place.shape]}"
                    raise OperatorError(text, hint="make them agree")
        return pairs


def _values(sources: Sequence[Source], slots: Sequence[Any]) -> list[Any]:
    return [slots[source] if type(source) is int else source for source in sources]
