"""Take over decisions: a plan for other input sizes gets the nodes, kernels and layouts of an earlier plan of the model.

Everything that depends on sizes is computed anew: types, and what is folded. Everything else is the earlier plan's, where the
same decisions hold: the passes behind stage `bind` do not run.
"""

import weakref
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.graph import DType, Graph, Layout, Node, TensorType, as_constant
from dovetail.passes import PassContext
from dovetail_ops_onnx.passes import KEPT_PLANS, MOST_GRAPHS, WIDENED
from dovetail_ops_onnx.passes._equal_sizes import STANDARD, Group, Pairs, groups_of, images, origins_of, pairs_of, stood_for
from dovetail_ops_onnx.passes._typed_again import Bodies, TypedAgain
from dovetail_ops_onnx.reshape import Reshape

__all__ = ["take_over"]

_SMALL = 64
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
    bodies = {name: (node, body) for name, (node, body) in context.notes.bodies.items() if body is not None}
    analyzed = _expanded(planned.analyzed, bodies) if len(bodies) == len(context.notes.bodies) else None
    if analyzed is None or not all(graph.types[name].is_static for name in graph.inputs):
        return
    if all(analyzed.types[name].is_static for name in _names(analyzed)):
        made = _Earlier(graph, varying, replace(planned, analyzed=analyzed), context, bodies)
        if kept:
            made.look()
        kept.setdefault(id(graph.nodes), deque(maxlen=KEPT_PLANS)).appendleft(made)
        if (waits := context.notes.deferred) is not None:
            context.memory["parts before"][id(waits.rest.nodes)] = made
        for found in (kept, context.memory["parts before"]):
            for key in [*found][: max(0, len(found) - MOST_GRAPHS)]:
                found.pop(key, None)


def _names(analyzed: Graph) -> Iterable[str]:
    return dict.fromkeys(
        [*analyzed.inputs, *analyzed.outputs, *(name for node in analyzed.nodes for name in (*node.reads, *node.writes))]
    )


def _expanded(graph: Graph, bodies: Bodies) -> Graph | None:
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

    def __init__(self, graph: Graph, varying: frozenset[str], planned: Any, context: PassContext, bodies: Bodies) -> None:
        self.varying = varying
        self._refused: Sequence[TensorType] | None = None
        self.rules, self.stops = dict(context.notes.rules), dict(context.notes.stops)
        self._constants_of = _Constants(graph.constants, varying)
        self._nodes, self._inputs = graph.nodes, graph.inputs
        waits = context.notes.deferred
        self._deferred = None if waits is None else _Deferred.of(waits, graph.constants.keys() - varying)
        # The pass may have been left out.
        self._splits = _splits(planned.parts, context)
        self._unseen: Callable[[], None] | None = partial(self._look, graph, planned, bodies, waits)

    def look(self) -> None:
        """Note what decides whether the plan holds for other sizes. Threads may do this twice, with the same result."""
        if (look := self._unseen) is not None:
            look()

    def _look(self, graph: Graph, planned: Any, bodies: Bodies, waits: Any) -> None:
        analyzed, parts = planned.analyzed, planned.parts
        deferred = () if waits is None else ((*waits.ready, *waits.rest.nodes), waits.containers)
        self._again = TypedAgain.of(graph, self.varying, analyzed, bodies, *deferred)
        graph = graph.replace(constants={name: array for name, array in graph.constants.items() if name not in self.varying})
        widened = _widened(graph, analyzed, parts)
        nothing = Graph((), planned.whole.inputs, planned.whole.outputs, name=graph.name)
        self._planned = replace(planned, whole=nothing, parts=(), analyzed=nothing)
        names = dict.fromkeys(_names(analyzed))
        self._by_type: dict[tuple[Any, Any], list[str]] = {}
        for name in names.keys() - graph.constants.keys():
            self._by_type.setdefault((analyzed.types[name].dtype, analyzed.types[name].dims), []).append(name)
        by_type = [(key, [name for name in names if name in self._inputs]) for key, names in self._by_type.items()]
        self._inputs_by_type = [(key, names) for key, names in by_type if names]
        self._fixed = {n: pairs_of(d, d) for n in names if n in graph.constants and (d := analyzed.types[n].dims)}
        self._constants = tuple(analyzed.constants)
        own = {name for _, body in bodies.values() for name in body.constants}
        self._same = {
            name: array if array.size <= _SMALL else weakref.ref(array)
            for name, array in analyzed.constants.items()
            if graph.constants.get(name) is array or array.size <= _SMALL or name in own
        }
        self._free = _free(analyzed, parts, widened)
        origins = origins_of(analyzed, bodies)
        self._parts = [_Template.of(part, analyzed, origins, widened) for part in parts]
        self._groups = groups_of(analyzed, parts, origins, widened)
        self._images = images(analyzed, parts, origins)
        self._wholes = [Group.of([group for group in self._groups if group.by_axis is kind], kind) for kind in (False, True)]
        new = [part.graph.constants[name] for part, one in zip(parts, self._parts, strict=True) for name in one.made]
        # A new constant of whole numbers may be made of sizes, which bytes are not.
        is_made = any(a.dtype.kind in "iuOSU" and a.dtype.itemsize > 1 for a in new)
        # Constants that a pass made, of which only their own plan knows, may be outputs.
        folded = planned.whole.constants.keys() - analyzed.constants.keys()
        self._holds = not is_made and names.keys() >= {*nothing.outputs} and folded.isdisjoint(nothing.outputs)
        self._unseen = None

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
        types = self._types(graph, context)
        try:
            parts = None if types is None else [one.resized(types, context.limit) for one in self._parts]
        except Exception:  # a new node refuses the sizes: all is planned, with errors that name nodes of the model
            return None, None
        if types is None or parts is None or None in parts:
            return None, None
        if not self._splits and _splits(parts, context):
            return None, None
        constants = {name: tensor.value for name, tensor in types.items() if tensor.value is not None}
        whole = self._planned.whole.replace(constants={name: constants[name] for name in self._constants}, types=types)
        deferred = None if self._deferred is None else self._deferred.resized(constants, types)
        return replace(self._planned, whole=whole, parts=parts), deferred

    def _types(self, graph: Graph, context: PassContext) -> Mapping[str, TensorType] | None:
        """The types of all values; None where the decisions do not hold."""
        if self._refused == [graph.types[name] for name in graph.inputs] or self.changed(graph):
            return None
        self.look()
        if self._again is None or not self._holds or self._pairs(graph.types, of_inputs=True) is None:
            return None
        types = self._again.types(graph, context.limit, context.budget)
        pairs = None if types is None else self._pairs(types)
        if types is None or pairs is None or not self._fits(pairs) or not self._reads(types):
            return None
        return types if all(types[one].dims[0] == types[other].dims[0] for one, other in self._images) else None

    def _pairs(self, types: Mapping[str, TensorType], *, of_inputs: bool = False) -> dict[str, Pairs] | None:
        """The sizes of each value, or only of inputs; None where more than sizes changed, or one that is or was 0 or 1."""
        found: dict[str, Pairs] = dict(self._fixed)
        for (dtype, dims), names in self._inputs_by_type if of_inputs else self._by_type.items():
            known: dict[int, Pairs] = {}  # equal types are mostly one object: see `TypedAgain`
            for name in names:
                now = types[name]
                pairs = known.get(id(now))
                if pairs is None:
                    if now.dtype is not dtype or not now.is_static or len(now.dims) != len(dims):
                        return None
                    pairs = known[id(now)] = pairs_of(dims, now.dims)
                    if any(one != other and min(one, other) < 2 for _, one, other in pairs):
                        return None
                found[name] = pairs
        return found

    def _fits(self, pairs: Mapping[str, Pairs]) -> bool:
        """Whether each group fits; mostly all of a kind do as one."""
        return all(whole.fits(pairs) for whole in self._wholes) or all(group.fits(pairs) for group in self._groups)

    def _reads(self, types: Mapping[str, TensorType]) -> bool:
        """Whether constants are the same, or only read by name."""
        for name in self._constants:
            before, now = self._same.get(name), types[name].value
            before = before() if isinstance(before, weakref.ref) else before
            if before is now or name in self._free:
                continue
            if before is None or now is None or before.tobytes() != now.tobytes():  # their types were compared
                return False
        return True


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
        self._small = {name: a for name, a in constants.items() if name not in varying and a.size <= _SMALL}
        self._large = {name: weakref.ref(a) for name, a in constants.items() if name not in varying and a.size > _SMALL}

    def changed(self, constants: Mapping[str, NDArray[Any]]) -> frozenset[str]:
        """Those of another content. Of large ones the identity counts."""
        large = [name for name, reference in self._large.items() if reference() is not constants[name]]
        small = [name for name, array in self._small.items() if array is not constants[name]]
        return frozenset([*large, *(name for name in small if not _is_same(self._small[name], constants[name]))])


def _is_same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    is_alike = (one.dtype, one.shape) == (other.dtype, other.shape) and one.dtype != object
    return is_alike and one.tobytes() == other.tobytes()


def _widened(graph: Graph, analyzed: Graph, parts: Sequence[Any]) -> Mapping[str, str]:
    """The constants in float32 of those of halves that may depend on sizes, with the names of these: see `widen_halves`."""
    new = (name for part in parts for name in part.graph.constants if name.endswith(WIDENED))
    sources = {name: name.removesuffix(WIDENED) for name in new}
    return {name: half for name, half in sources.items() if half in analyzed.constants.keys() - graph.constants.keys()}


def _free(analyzed: Graph, parts: Sequence[Any], widened: Mapping[str, str]) -> frozenset[str]:
    """The constants that only views read, whose types have all there is to know, or that their readers, as nodes of their own or
    in the chain of another, still read as they are: by name, by that of the same array in another layout, or in float32.
    """
    own = analyzed.constants
    reads: set[tuple[str, int]] = set()
    for graph in (part.graph for part in parts):
        arrays = {name: id(own[widened[name]] if name in widened else array) for name, array in graph.constants.items()}
        for node in graph.nodes:
            ids = [arrays[name] for name in node.reads if name in arrays]
            reads.update((origin, one) for origin in (node.name, *node.origins) for one in ids)
    nodes = [node for node in analyzed.nodes if not node.op.is_view]
    # Nodes of a body have one origin: where another one reads the constant too, it is not known which of them still does.
    # The second input of an Expand that became part of another node, says no more than the shape of its result does.
    left = {origin for g in (part.graph for part in parts) for n in g.nodes if _is_expand(n) for origin in (n.name, *n.origins)}
    reading = {n.name: n.inputs[:1] if _is_expand(n) and left.isdisjoint((n.name, *n.origins)) else n.reads for n in nodes}
    constants = {name: {id(own[one]) for one in values if one in own} for name, values in reading.items()}
    readers = Counter((origin, one) for n in nodes for one in constants[n.name] for origin in {n.name, *n.origins})

    def is_read(node: Node, constant: int) -> bool:
        return any((o, constant) in reads and readers[o, constant] == 1 for o in (node.name, *node.origins))

    bound = {name for node in nodes for name in reading[node.name] if name in own and not is_read(node, id(own[name]))}
    return frozenset(own.keys() - bound)


def _is_expand(node: Node) -> bool:
    return node.op.package in STANDARD and node.op.op_type == "Expand"


@dataclass(frozen=True, slots=True)
class _Template:
    """A part without types and constants: for each value the one of the analyzed graph ("" for none), data type and layout.

    `made` are constants that passes made, `shapes` those of them that are the shape of a value, with that value, `views` those
    that are the shape of another one, `again` the nodes whose types are inferred, because passes made them or what they write.
    """

    part: Any
    values: Mapping[str, tuple[str, DType, Layout]]
    made: Mapping[str, "weakref.ref[NDArray[Any]]"]
    shapes: Mapping[str, str]
    views: "Mapping[str, _View]"
    halves: Mapping[str, str]
    again: tuple[Node, ...]

    @staticmethod
    def of(part: Any, analyzed: Graph, origins: Mapping[str, list[Node]], widened: Mapping[str, str]) -> "_Template":
        """That of a part of a plan."""
        graph, own = part.graph, {id(array): name for name, array in analyzed.constants.items()}
        values: dict[str, tuple[str, DType, Layout]] = {}
        for name in dict.fromkeys([*graph.inputs, *graph.constants, *(n for node in graph.nodes for n in node.writes)]):
            array = graph.constants.get(name)
            source = name if array is None else own.get(id(array), "")
            tensor = graph.types[name]
            values[name] = source if source in analyzed.types else "", tensor.dtype, tensor.layout
        new = [name for name in graph.constants if not values[name][0]]
        shapes = {name: value for name in new if (value := _shape_of(name, graph)) and values[value][0]}
        views = {n: view for n in new if n not in shapes and (view := _View.of(n, graph, analyzed.types, origins)) is not None}
        known = {*shapes, *views, *widened}
        made = {name: weakref.ref(graph.constants[name]) for name in new if name not in known}
        halves = {name: widened[name] for name in new if name in widened}
        ops = {id(node.op) for node in analyzed.nodes}
        again = [n for n in graph.nodes if id(n.op) not in ops or not all(values[name][0] for name in n.writes)]
        empty = graph.replace(types={}, constants=dict.fromkeys(graph.constants))
        return _Template(replace(part, graph=empty), values, made, shapes, views, halves, tuple(again))

    def resized(self, known: Mapping[str, TensorType], limit: int | None) -> Any:
        """The part with other types and constants; None where a new node would compute something else."""
        graph, types, constants = self.part.graph, {}, {}
        moved: dict[tuple[int, DType, Layout], TensorType] = {}  # equal types stay one object
        for name, (source, dtype, layout) in self.values.items():
            if source:
                found = known[source]
                if found.layout is not layout or found.dtype is not dtype:
                    key = id(found), dtype, layout
                    typed = found if found.dtype is dtype else found.with_dtype(dtype)  # which has no value
                    found = moved.get(key) or moved.setdefault(key, typed.with_layout(layout))
                types[name] = found
                if name in graph.constants:
                    constants[name] = found.value
        for name, reference in self.made.items():
            array = reference()
            if array is None:
                return None
            constants[name], types[name] = array, TensorType.of(array, known=True).with_layout(self.values[name][2])
        new = {name: np.asarray(types[value].dims, np.int64) for name, value in self.shapes.items()}
        new.update((name, np.asarray(view.resized(known), np.int64)) for name, view in self.views.items())
        new.update((name, np.asarray(known[half].value, np.float32)) for name, half in self.halves.items())
        for name, made in new.items():
            constant = constants[name] = as_constant(made)
            types[name] = TensorType.of(constant, known=True).with_layout(self.values[name][2])
        for node in self.again:
            inputs = [types[name] if name else None for name in node.inputs]
            given = node.op.infer(*inputs, *(None,) * (sum(not p.variadic for p in node.op.inputs) - len(inputs)))
            for name, found in zip(node.outputs, given if isinstance(given, tuple) else (given,), strict=False):
                if name and _differ(types.setdefault(name, found.with_layout(self.values[name][2])), found, limit):
                    return None
        return replace(self.part, graph=graph.replace(types=types, constants=constants))


@dataclass(frozen=True, slots=True)
class _View:
    """The shape of a value that a pass made, and sizes before with the value and axis that have them."""

    dims: tuple[int, ...]
    sizes: tuple[tuple[int, str, int], ...]

    @staticmethod
    def of(name: str, graph: Graph, types: Mapping[str, TensorType], origins: Mapping[str, list[Node]]) -> "_View | None":
        """`types` are those of the analyzed graph. None for a constant that is read otherwise."""
        if not _is_shape(name, graph):
            return None
        views = graph.consumers[name]
        nodes = dict.fromkeys([*views, *(node for one in views for node in graph.consumers.get(one.writes[0], ()))])
        known = [node for one in nodes for node in (*stood_for(one, origins), one)]
        values = dict.fromkeys(value for node in known for value in (*node.reads, *node.writes) if value in types)
        sizes = ((size, value, axis) for value in values for axis, size in enumerate(types[value].dims))
        return _View(tuple(graph.constants[name].tolist()), tuple(sizes))

    def resized(self, types: Mapping[str, TensorType]) -> Sequence[int]:
        """The sizes now. Raises `ValueError` where one of before is now two, and two are not among those of the values."""
        now: dict[int, int] = {}
        for size, value, axis in self.sizes:
            if now.setdefault(size, types[value].dims[axis]) != types[value].dims[axis]:
                raise ValueError(f"{size} was the size of different things")
        found = [now.get(size, -1) for size in self.dims]
        if found.count(-1) > 1:
            raise ValueError(f"the sizes {self.dims}")
        return found


def _is_shape(name: str, graph: Graph) -> bool:
    """Whether a constant is the shape of values, and nodes read it for nothing else."""
    readers, found = graph.consumers.get(name, ()), graph.constants[name]
    dims = tuple(found.tolist()) if found.dtype == np.int64 and found.ndim == 1 else None
    return bool(readers) and all(
        type(one.op) is Reshape
        and one.op.allowzero
        and one.inputs[1] == name
        and not one.post_ops
        and graph.types[one.writes[0]].dims == dims
        for one in readers
    )


def _shape_of(name: str, graph: Graph) -> str:
    """A value whose shape a constant is, if that is all that nodes read it for; else ""."""
    return graph.consumers[name][0].writes[0] if _is_shape(name, graph) else ""


def _differ(one: TensorType, other: TensorType, limit: int | None) -> bool:
    return (one.dtype, one.shape) != (other.dtype, other.shape) or (limit is not None and one.nbytes > limit)
