"""Runs a node with sub-graphs again and again: what does not depend on its values is found once."""

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import OperatorError, TimeLimitExceeded
from dovetail.evaluate.context import node_context
from dovetail.evaluate.inference import padded
from dovetail.graph.graph import Graph, Iterations, Node
from dovetail.graph.types import TensorType
from dovetail.planning.deferred import separate, signature
from dovetail.planning.held import HeldBytes
from dovetail.planning.plan import Body, HostStep, Source

__all__ = ["ControlNode", "RunBody"]

Parts = tuple[Sequence[Any], Sequence[Any], Sequence[NDArray[Any]]]

RunBody = Callable[[Sequence[Any]], list[Any]]
"""Runs a sub-graph with its arguments: its outputs."""


class _RunsBody(Protocol):
    """A sub-graph of a node; both methods take the values that it reads from outside."""

    def body(self, node: Node, captured: Sequence[Any], /) -> RunBody:
        """The call for one run of the node."""

    def iterations(
        self, node: Node, limit: int, captured: Sequence[Any], parts: Parts, stacked: Sequence[bool], most: int | None, /
    ) -> Iterations | None:
        """See `RunGraph.iterations`; `parts` are the fixed, carried and scanned arguments."""


class ControlNode:
    """The calls of a node that runs sub-graphs, in one request; `bodies` are its sub-graphs, in their order."""

    def __init__(self, step: HostStep, bodies: Sequence[_RunsBody]) -> None:
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
        step, node, wanted = self._step, self._step.node, self._wanted
        values = _values(self._reads, slots)
        run = _RunCounted(step, self._bodies, slots, self._by_port)
        try:
            with node_context(node):
                self._check(values)
                given = node.op.control(run, *values, *self._missing)
                given = given if isinstance(given, tuple) else (given,)
                if len(given) < len(wanted):
                    raise OperatorError(f"control() gave {len(given)} outputs, the node has {len(wanted)}")
        except TimeLimitExceeded as error:
            if f"node {node}" not in error.message:  # a node of a sub-graph was running
                error.message += f"; it is in a sub-graph of node {node}"
            raise
        return separate([*compress(given, wanted)], values)

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
        bodies: Mapping[int, tuple[_RunsBody, Body]],
        slots: Sequence[Any],
        wanted: Sequence[bool],
    ) -> None:
        self._step, self._bodies, self._slots, self.wanted = step, bodies, slots, wanted
        self._held = HeldBytes(step.node, step.limit)
        self._runs: dict[int, RunBody] = {}  # those that ran: of two branches one does

    def __call__(self, graph: Graph, arguments: Sequence[Any]) -> list[Any]:
        run = self._runs.get(id(graph))
        if run is None:
            runs, body = self._bodies[id(graph)]
            run = self._runs[id(graph)] = runs.body(self._step.node, _values(body.captures, self._slots))
        results = run(arguments)
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


def _values(sources: Sequence[Source], slots: Sequence[Any]) -> list[Any]:
    return [slots[source] if type(source) is int else source for source in sources]
