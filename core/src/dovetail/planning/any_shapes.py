"""Plans for further shapes of a graph whose shapes keep changing, where a plan for each takes longer than its nodes.

Nodes that read or give what changes run on the host; all others are planned once.
"""

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import pairwise

import numpy as np

from dovetail.devices.checked import prescribes
from dovetail.devices.contract import Device
from dovetail.graph.dtype import DType
from dovetail.graph.graph import Graph, Node
from dovetail.graph.types import TensorType
from dovetail.passes.constant_folding import Typed
from dovetail.planning.estimates import flops, most_seconds
from dovetail.planning.plan import OpenInputs, Plan, Room, Signature, typed_inputs
from dovetail.planning.plan_cache import GROWING

__all__ = ["AnyShapes", "opened", "read_in_parts", "takes_less_beside"]

_MIXED = 0.01
"""The same for the nodes that the host runs of a graph of which the devices run others: it takes longer to plan these, too."""

_PLANNED = 2.5e-4
"""The same for each node of the graph: planning takes 50 us a node, and most nodes a fifth of what `most_seconds` estimates."""

_MEASURED = 0.25
"""The part of these seconds that a run may really take for a plan to serve larger shapes: the estimate is a worst case."""

_LARGE, _PART = 1 << 17, 0.1
"""Bytes of an input from which on the host takes parts of it, and how large these may be."""

_FEW = 1 << 16
"""Elements of a graph's inputs up to which the host runs all of its nodes."""

_MOST = 4
"""Attempts to plan a graph with open inputs: the shapes of others may change later."""


class AnyShapes:
    """Gives plans of a graph for further signatures, None where each should have one of its own; see `PlanCache`.

    `typed` types the graph for a signature, `plan_open` plans it with inputs of open shapes and the names of values whose types
    change, `on_host` without any device, once there are `full` plans. `varying` are those of the values around the graph: None
    where they are to be found by comparing signatures. `grows`: of a model, whose plans are shared where its inputs grow alone.
    """

    def __init__(
        self,
        graph: Graph,
        typed: Callable[[Signature], Typed],
        plan_open: Callable[[Graph, frozenset[str]], Plan],
        on_host: Callable[[Graph], Plan],
        varying: frozenset[str] | None = None,
        full: int = 1,
        grows: bool = False,
    ) -> None:
        self._full, self._grows = full, grows
        self._graph, self._typed, self._plan_open, self._on_host = graph, typed, plan_open, on_host
        self._varying = varying
        self._made: list[tuple[Signature, Plan]] = []
        self._tries = 0
        self._alone: Plan | None = None

    def __call__(self, key: Signature, plans: Mapping[Signature, Plan]) -> Plan | None:
        """A plan that serves the signature, made now or before."""
        if (made := self.serving(key)) is not None:
            return made
        if self._tries < _MOST and (not self._grows or _grow([*plans][-GROWING:], key)):
            self._tries += 1
            if (mixed := self._mixed(key, plans)) is not None:
                return mixed
        if self._grows:
            return None
        if self._varying is None and len(plans) < self._full:  # shapes of which there are some may all return
            return None
        everything = frozenset(number for number, item in enumerate(key) if not isinstance(item, str))
        if elements(key, everything) > _FEW or not (self._alone or all(plan.is_brief for plan in plans.values())):
            return None
        if self._alone is None:
            self._alone = self._on_host(self._graph)
        alone = replace(self._alone, open_inputs=OpenInputs(everything, Room(_FEW)))
        self._made.append((key, alone))
        return alone

    def serving(self, key: Signature) -> Plan | None:
        """A plan made before that serves the signature."""
        for taken, plan in self._made:
            if plan.open_inputs is not None and plan.open_inputs.serve(taken, key):
                return plan
        return None

    def _mixed(self, key: Signature, plans: Mapping[Signature, Plan]) -> Plan | None:
        """A plan that leaves open what differs from the latest signature; None where the host would run too much, or all."""
        now, varying = self._typed(key), self._varying
        if varying is None:
            latest = next(reversed([*plans]), None)
            varying = frozenset() if latest is None else changed(self._typed(latest), now)
        elif self._made:  # of results of nodes before the graph only signatures show which ones vary
            varying |= changed(self._typed(self._made[-1][0]), now)
        open_inputs = varying.intersection(self._graph.inputs)
        nodes = now.graph.nodes
        on_host = [n for n in nodes if not varying.isdisjoint((*n.reads, *n.writes))]
        seconds = sum(most_seconds(node, now.graph) for node in on_host)
        limit = max(_MIXED, _PLANNED * len(nodes))
        if not open_inputs or len(on_host) == len(nodes) or seconds > limit:
            return None
        open_inputs = open_inputs.union(name for name in self._graph.inputs if name not in self._graph.consumers)
        numbers = frozenset(
            number
            for number, (name, item) in enumerate(zip(self._graph.inputs, key, strict=True))
            if name in open_inputs and not isinstance(item, str)
        )
        # Lengths of a model's inputs return in other runs, so that a plan for each of them pays; those of a loop only grow.
        room = Room(elements(key, numbers) * limit / max(seconds, 1e-9), 0.0 if self._grows else _MEASURED * limit)
        plan = replace(self._plan_open(opened(self._graph, key, open_inputs), varying), open_inputs=OpenInputs(numbers, room))
        self._made.append((key, plan))
        return plan


def _grow(keys: Sequence[Signature], key: Signature) -> bool:
    """Whether the inputs of the signatures, in order, have more and more elements."""
    counts = [elements(one, frozenset(range(len(one)))) for one in (*keys, key)]
    return len(keys) >= GROWING and all(a < b for a, b in pairwise(counts))


def opened(graph: Graph, key: Signature, names: Set[str]) -> Graph:
    """The graph typed by a signature, the shapes of some of its inputs open."""
    typed = typed_inputs(graph, key)
    is_array = {name for name, item in zip(graph.inputs, key, strict=True) if not isinstance(item, str)}
    types = {name: TensorType(typed.types[name].dtype, None) for name in is_array & names}
    return typed.replace(types={**typed.types, **types})


def read_in_parts(graph: Graph, key: Signature, typed: Callable[[Signature], Typed]) -> frozenset[str]:
    """The large inputs of which nodes only take small parts, such as a row: to copy them to a device takes longer than that."""
    large = {n for n, item in zip(graph.inputs, key, strict=True) if not isinstance(item, str) and _bytes(item) >= _LARGE}
    if not large:
        return frozenset()
    whole = typed(key).graph
    found = [name for name in large if (nodes := whole.consumers.get(name)) and all(_takes_part(n, name, whole) for n in nodes)]
    return frozenset(found).difference(whole.outputs)


def _bytes(item: tuple[DType, tuple[int, ...]]) -> int:
    return math.prod(item[1]) * item[0].itemsize


def _takes_part(node: Node, name: str, graph: Graph) -> bool:
    if flops(node, graph) or not node.op.has_reference() or node.op.subgraphs or node.post_ops:
        return False
    return sum(graph.types[one].nbytes for one in node.writes) <= _PART * graph.types[name].nbytes


def changed(one: Typed, other: Typed) -> frozenset[str]:
    """The values whose types, or contents as far as they are known, differ between two analyses of a graph."""
    before, now = ({**typed.late, **typed.graph.types} for typed in (one, other))
    return frozenset(name for name, t in now.items() if name not in before or not _same(before[name], t))


def _same(one: TensorType, other: TensorType) -> bool:
    if one != other or (one.value is None) is not (other.value is None):
        return False
    return one.value is other.value or bool(np.array_equal(one.value, other.value))  # type: ignore[arg-type]


def elements(key: Signature, numbers: Set[int]) -> int:
    """The elements of some inputs together."""
    return sum(math.prod(item[1]) for number, item in enumerate(key) if number in numbers and not isinstance(item, str))


def takes_less_beside(device: Device, typed: Typed) -> bool:
    """Whether a CPU is estimated to run the typed nodes of a sub-graph in less time than the device needs for its round trip.

    1 us for a node, 1 ns for each of its elements, 0.25 ns for an operation. Not where the user gave an operator a kernel for it.
    """
    graph, ops = typed.graph, [node.op for node in typed.graph.nodes]
    if any(op.kernels or prescribes(device, op.domain, op.op_type) for op in ops):
        return False
    elements = sum(graph.types[name].size for node in graph.nodes for name in (*node.reads, *node.writes))
    operations = sum(flops(node, graph) for node in graph.nodes)
    return 1e-6 * len(ops) + 1e-9 * elements + 2.5e-10 * operations <= device.round_trip
