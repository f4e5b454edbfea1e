"""Take over decisions: a plan for other input sizes gets the nodes, kernels and layouts of an earlier plan of the model.

Everything that depends on sizes is computed anew: types, and what is folded. Everything else is the earlier plan's, where the
same decisions hold: the passes behind stage `bind` do not run.
"""

import weakref
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import Reason
from dovetail.graph import Graph, TensorType
from dovetail.passes import PassContext
from dovetail_ops_onnx.passes import KEPT_PLANS, MOST_GRAPHS

if TYPE_CHECKING:
    from dovetail_ops_onnx.passes._decisions import Decisions
    from dovetail_ops_onnx.passes._typed_again import Bodies

__all__ = ["SMALL", "names_of", "take_over"]

SMALL = 64
"""Elements up to which constants that sizes may change are kept, to be compared."""


def take_over(graph: Graph, context: PassContext) -> Graph:
    """Take over what passes decided for an earlier plan of the model, where it holds for other input sizes.

    Passes with `any_sizes` decide by data types, ranks, constants, and whether sizes are equal, 0 or 1. So their result holds
    for a graph of the same nodes in which sizes are equal where they were (compared are those of all values that the nodes
    touch which one node of the plan stands for; where these compute element by element or are convolutions, those of one axis),
    and 0 or 1 where they were; in which no other size is an attribute of a new node; and in which constants of another content
    are still read by name, or are the shapes of values. What devices refuse is planned from the beginning, and so are products
    that the first device takes as digits now and did not before, or the reverse, because the precision must not depend on
    earlier sizes.
    """
    if context.notes.afresh:
        return graph
    kept: _Kept = context.memory["plans"]
    known = kept.get(id(graph.nodes), deque())  # which keeps these nodes alive
    alike = [one for one in tuple(known) if one.is_of(graph)]
    for earlier in alike:
        planned, deferred = earlier.resized(graph, context)
        if planned is not None:
            notes = context.notes
            notes.deferred = deferred
            notes.planned, notes.when_refused = planned, partial(_refuse, known, earlier, graph)
            notes.rules.update(earlier.rules)
            notes.stops.update(earlier.stops)
            return graph
    before: dict[int, _Earlier] = context.memory["parts before"]
    made = frozenset[str]() if (part := before.get(id(graph.nodes))) is None else part.made_for(graph)
    varying = made.union(*(one.varying | one.changed(graph) for one in alike))
    context.notes.when_planned = partial(_remember, kept, graph, varying, context)
    return graph


_Kept = dict[int, "deque[_Earlier]"]
"""By the identity of the nodes of a graph its plans, the latest first."""


def _remember(kept: _Kept, graph: Graph, varying: frozenset[str], context: PassContext, planned: Any) -> None:
    if any(refusal.reason is Reason.MEMORY for _, refusals in planned.placed.values() for _, refusal in refusals):
        return  # smaller sizes run on the device that refused these
    bodies = {name: (node, body) for name, (node, body) in context.notes.bodies.items() if body is not None}
    analyzed = _expanded(planned.analyzed, bodies) if len(bodies) == len(context.notes.bodies) else None
    if analyzed is None or not all(graph.types[name].is_static for name in graph.inputs):
        return
    if all(analyzed.types[name].is_static for name in names_of(analyzed)):
        made = _Earlier(graph, varying, replace(planned, analyzed=analyzed), context, bodies)
        if kept:
            made.look()
        kept.setdefault(id(graph.nodes), deque(maxlen=KEPT_PLANS)).appendleft(made)
        if (waits := context.notes.deferred) is not None:
            context.memory["parts before"][id(waits.rest.nodes)] = made
        for found in (kept, context.memory["parts before"]):
            for key in [*found][: max(0, len(found) - MOST_GRAPHS)]:
                found.pop(key, None)


def names_of(analyzed: Graph) -> Iterable[str]:
    """The names of all values of a graph, each once."""
    return dict.fromkeys(
        [*analyzed.inputs, *analyzed.outputs, *(name for node in analyzed.nodes for name in (*node.reads, *node.writes))]
    )


def _expanded(graph: Graph, bodies: "Bodies") -> Graph | None:
    """The graph with the bodies in place of the nodes that were expanded; None where one of these is not as it was here."""
    nodes, constants, types, waiting, left = [], dict(graph.constants), dict(graph.types), [*reversed(graph.nodes)], dict(bodies)
    while waiting:
        node = waiting.pop()
        origin, body = left.pop(node.name, (None, None))
        if origin is None or body is None:
            nodes.append(node)
            continue
        if origin.op is not node.op or origin.inputs != node.inputs:
            return None
        waiting += reversed(body.nodes)
        constants.update(body.constants)
        types.update(body.types)
    return None if left else graph.replace(nodes=tuple(nodes), constants=constants, types=types)


def _refuse(known: "deque[_Earlier]", earlier: "_Earlier", graph: Graph) -> None:
    """Note that a device refuses these sizes: it may take others, for which other plans are tried first."""
    earlier.refuse(graph)
    _forget(known, earlier)
    known.append(earlier)


def _forget(known: "deque[_Earlier]", one: "_Earlier") -> None:
    with suppress(ValueError):  # another thread may have forgotten it
        known.remove(one)


class _Earlier:
    """The decisions of a plan. Those of the first one are looked at when other sizes come, which most programs do not have: it
    takes a tenth of the time of a plan. From then on no array is kept alive that a pass or folding made, but for small ones;
    before, the plan's report needs them too.

    `varying` are the constants of which plans of the same nodes had others: those that the part before them made of sizes.
    """

    def __init__(self, graph: Graph, varying: frozenset[str], planned: Any, context: PassContext, bodies: "Bodies") -> None:
        self.varying = varying
        self._refused: Sequence[TensorType] | None = None
        self.rules, self.stops = dict(context.notes.rules), dict(context.notes.stops)
        self._constants_of = _Constants(graph.constants, varying)
        self._nodes, self._inputs = graph.nodes, graph.inputs
        waits = context.notes.deferred
        self._deferred = None if waits is None else _Deferred.of(waits, graph.constants.keys() - varying)
        # The pass may have been left out.
        self._splits = _splits(planned.parts, context)
        self._decisions: Decisions | None = None
        self._unseen: Callable[[], Decisions] | None = partial(_decisions_of, graph, varying, planned, bodies, waits)

    def look(self) -> "Decisions":
        """Find what decides whether the plan holds for other sizes. Threads may do this twice, with the same result."""
        unseen = self._unseen
        if unseen is not None:
            self._decisions, self._unseen = unseen(), None
        assert self._decisions is not None
        return self._decisions

    def refuse(self, graph: Graph) -> None:
        """Decline these sizes from now on."""
        self._refused = [graph.types[name] for name in graph.inputs]

    def is_of(self, graph: Graph) -> bool:
        """Whether it is of the same nodes: sub-graphs, and what waits for data, are planned by the same passes."""
        is_alike = self._nodes is graph.nodes and self._inputs == graph.inputs
        return is_alike and self._constants_of.names == graph.constants.keys()

    def made_for(self, graph: Graph) -> frozenset[str]:
        """The constants that folding made of sizes for a graph that is what waits for data here."""
        deferred = self._deferred
        return frozenset() if deferred is None or deferred.continuation.rest.nodes is not graph.nodes else deferred.made

    def changed(self, graph: Graph) -> frozenset[str]:
        """The constants of another content. Of large ones the identity counts."""
        return self._constants_of.changed(graph.constants)

    def resized(self, graph: Graph, context: PassContext) -> tuple[Any, Any]:
        """The parts with other sizes, and what waits for data; None for both where the decisions do not hold."""
        if self._refused == [graph.types[name] for name in graph.inputs] or self.changed(graph):
            return None, None
        planned = self.look().resized(graph, context)
        if planned is None or (not self._splits and _splits(planned.parts, context)):
            return None, None
        types = planned.whole.types
        constants = {name: tensor.value for name, tensor in types.items() if tensor.value is not None}
        return planned, None if self._deferred is None else self._deferred.resized(constants, types)


def _decisions_of(*given: Any) -> "Decisions":
    """The decisions of a plan, by the arguments of their class."""
    from dovetail_ops_onnx.passes._decisions import Decisions  # here: three modules that wait for other sizes

    return Decisions(*given)


def _splits(parts: Sequence[Any], context: PassContext) -> bool:
    """Whether the pass `split_rows` changes one of the parts, or would have made others."""
    kinds = ("MatMulBlocks", "MatMulDigits")
    products = [part.graph for part in parts if any(node.op.op_type in kinds for node in part.graph.nodes)]
    if not products:
        return False
    from dovetail_ops_onnx.passes.split_rows import would_split_rows  # here, because most models have no such products

    return any(would_split_rows(graph, context.keeps) for graph in products)


@dataclass(frozen=True, slots=True)
class _Deferred:
    """The part that waits for data, without constants; `own` are those of its rest, `made` those of them that folding made."""

    continuation: Any
    own: tuple[str, ...]
    made: frozenset[str]

    @staticmethod
    def of(continuation: Any, constants: Container[str]) -> "_Deferred":
        """That of a plan of a graph with these constants."""
        rest = continuation.rest
        empty = replace(continuation, rest=rest.replace(constants={}, types={}), constants={})
        return _Deferred(empty, tuple(rest.constants), frozenset(name for name in rest.constants if name not in constants))

    def resized(self, constants: Mapping[str, NDArray[Any]], types: Mapping[str, TensorType]) -> Any:
        """With the constants that there are now."""
        own = {name: constants[name] for name in self.own}
        rest = self.continuation.rest.replace(constants=own, types={name: types[name] for name in own})
        return replace(self.continuation, rest=rest, constants=constants)


class _Constants:
    """The constants of a graph, but for those that are others each time. Large ones are kept alive by plans alone."""

    def __init__(self, constants: Mapping[str, NDArray[Any]], varying: Container[str]) -> None:
        self.names = frozenset(constants)
        self._small = {name: a for name, a in constants.items() if name not in varying and a.size <= SMALL}
        self._large = {name: weakref.ref(a) for name, a in constants.items() if name not in varying and a.size > SMALL}

    def changed(self, constants: Mapping[str, NDArray[Any]]) -> frozenset[str]:
        """Those of another content. Of large ones the identity counts."""
        large = [name for name, reference in self._large.items() if reference() is not constants[name]]
        small = [name for name, array in self._small.items() if array is not constants[name]]
        return frozenset([*large, *(name for name in small if not _is_same(self._small[name], constants[name]))])


def _is_same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    is_alike = (one.dtype, one.shape) == (other.dtype, other.shape) and one.dtype != object
    return is_alike and one.tobytes() == other.tobytes()
