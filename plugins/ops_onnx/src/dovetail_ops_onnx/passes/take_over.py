"""Take over decisions: a plan for other input sizes gets the nodes, kernels and layouts of an earlier plan of the model.

Everything that depends on sizes is computed anew: types, and what is folded. Everything else is the earlier plan's, where the
same decisions hold: the passes behind stage `bind` do not run.
"""

import weakref
from collections import Counter, deque
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.graph import DType, Graph, Layout, Node, TensorType, as_constant
from dovetail.op import PLAIN
from dovetail.passes import PassContext
from dovetail_ops_onnx.passes import WIDENED
from dovetail_ops_onnx.passes._typed_again import Bodies, TypedAgain
from dovetail_ops_onnx.reshape import Reshape

__all__ = ["take_over"]

_SMALL = 64
"""Elements up to which constants that sizes may change are kept, to be compared."""

_CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "ConvTranspose", "QLinearConv"})
_PRODUCTS = frozenset({"Gemm", "MatMul", "MatMulInteger", "MatMulIntegerToFloat"})
_BY_AXIS = _CONVOLUTIONS.union(
    {"Add", "AveragePool", "BatchNormalization", "Cast", "Concat", "DequantizeLinear", "DynamicQuantizeLinear", "Convert"},
    {"GlobalAveragePool", "GlobalMaxPool", "InstanceNormalization", "LayerNormalization", "MaxPool", "Mul", "Pad"},
    {"QuantizeLinear", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Reorder", "Reshape", "Resize"},
    {"Slice", "Softmax", "Split", "Upsample"},
)
"""Operators for which sizes of different axes mean nothing to each other, their quantized forms too. So it is for those that
compute in place, and for products by constants.
"""

_STANDARD = ("dovetail", __package__.partition(".")[0])
"""The packages of these."""

Pairs = frozenset[tuple[int, int, int]]
"""The sizes of the axes of values: the axis, counted from the last one, before and now. Axis 0 stands for any."""


def take_over(graph: Graph, context: PassContext) -> Graph:
    """Take over what passes decided for an earlier plan of the model, where it holds for other input sizes.

    Passes with `any_sizes` decide by data types, ranks, constants, and whether sizes are equal, 0 or 1. So their result holds
    for a graph of the same nodes in which sizes are equal where they were (compared are those of all values that the nodes
    touch which one node of the plan stands for; where these compute element by element or are convolutions, those of one axis),
    and 0 or 1 where they were; in which no other size is an attribute of a new node; and in which constants of another content
    are still read by name, or are the shapes of values. What devices refuse is planned from the beginning.
    """
    if context.notes.afresh:
        return graph
    known: deque[_Earlier] = context.memory["plans"]
    for earlier in tuple(known):
        planned = earlier.resized(graph, context)
        if planned is not None:
            notes = context.notes
            notes.planned, notes.when_refused = planned, partial(_forget, known, earlier)
            notes.rules.update(earlier.rules)
            notes.stops.update(earlier.stops)
            return graph
    context.notes.when_planned = partial(_remember, known, graph, context)
    return graph


def _remember(known: "deque[_Earlier]", graph: Graph, context: PassContext, planned: Any) -> None:
    bodies = {name: (node, body) for name, (node, body) in context.notes.bodies.items() if body is not None}
    analyzed = _expanded(planned.analyzed, bodies) if len(bodies) == len(context.notes.bodies) else None
    if analyzed is not None and not graph.states and all(tensor.is_static for tensor in analyzed.types.values()):
        known.appendleft(_Earlier(graph, replace(planned, analyzed=analyzed), context, bodies))


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


def _forget(known: "deque[_Earlier]", one: "_Earlier") -> None:
    with suppress(ValueError):  # another thread may have forgotten it
        known.remove(one)


class _Earlier:
    """The decisions of a plan. Keeps alive no array that a pass or folding made, but for small ones."""

    def __init__(self, graph: Graph, planned: Any, context: PassContext, bodies: Bodies) -> None:
        analyzed, parts, self._graph = planned.analyzed, planned.parts, graph
        widened = _widened(graph, analyzed, parts)
        self.rules, self.stops = dict(context.notes.rules), dict(context.notes.stops)
        nothing = Graph((), planned.whole.inputs, planned.whole.outputs, name=graph.name)
        self._planned = replace(planned, whole=nothing, parts=(), analyzed=nothing)
        names = dict.fromkeys([*analyzed.outputs, *(name for node in analyzed.nodes for name in (*node.reads, *node.writes))])
        self._by_type: dict[tuple[Any, Any], list[str]] = {}
        for name in names.keys() - graph.constants.keys():
            self._by_type.setdefault((analyzed.types[name].dtype, analyzed.types[name].dims), []).append(name)
        self._fixed = {n: _pairs_of(d, d) for n in names if n in graph.constants and (d := analyzed.types[n].dims)}
        self._constants = tuple(analyzed.constants)
        self._same = {
            name: array
            for name, array in analyzed.constants.items()
            if graph.constants.get(name) is array or array.size <= _SMALL
        }
        self._again, self._free = TypedAgain.of(graph, analyzed, bodies), _free(analyzed, parts, widened)
        origins = _origins(analyzed, bodies)
        self._parts = [_Template.of(part, analyzed, origins, widened) for part in parts]
        self._groups = _groups(analyzed, parts, origins, widened)
        self._wholes = [_Group.of([group for group in self._groups if group.by_axis is kind], kind) for kind in (False, True)]
        new = [part.graph.constants[name] for part, one in zip(parts, self._parts, strict=True) for name in one.made]
        # A new constant of whole numbers may be made of sizes, which bytes are not.
        self._holds = all(a.dtype.kind not in "iuOSU" or a.dtype.itemsize == 1 for a in new) and names.keys() >= {
            *nothing.inputs,
            *nothing.outputs,
        }

    def resized(self, graph: Graph, context: PassContext) -> Any:
        """The parts with other sizes; None where the decisions do not hold."""
        # Sub-graphs and what waits for data are planned by the same passes.
        is_other = graph.nodes is not self._graph.nodes or graph.constants is not self._graph.constants
        if is_other or self._again is None or not self._holds or self._pairs(graph.types, graph.inputs) is None:
            return None
        types = self._again.types(graph, context.limit, context.budget)
        pairs = None if types is None else self._pairs(types)
        if types is None or pairs is None or not self._fits(pairs) or not self._reads(types):
            return None
        try:
            parts = [one.resized(types, context.limit) for one in self._parts]
        except Exception:  # a new node refuses the sizes: all is planned, with errors that name nodes of the model
            return None
        if None in parts:
            return None
        constants = {name: array for name in self._constants if (array := types[name].value) is not None}
        whole = self._planned.whole.replace(constants=constants, types=types)
        return replace(self._planned, whole=whole, parts=parts)

    def _pairs(self, types: Mapping[str, TensorType], inputs: Container[str] | None = None) -> dict[str, Pairs] | None:
        """The sizes of each value, or of inputs; None where more than sizes changed, or one that is or was 0 or 1."""
        found: dict[str, Pairs] = dict(self._fixed)
        for (dtype, dims), names in self._by_type.items():
            known: dict[int, Pairs] = {}  # equal types are mostly one object: see `TypedAgain`
            for name in names if inputs is None else [name for name in names if name in inputs]:
                now = types[name]
                pairs = known.get(id(now))
                if pairs is None:
                    if now.dtype is not dtype or not now.is_static or len(now.dims) != len(dims):
                        return None
                    pairs = known[id(now)] = _pairs_of(dims, now.dims)
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
            if before is now or name in self._free:
                continue
            if before is None or now is None or before.tobytes() != now.tobytes():  # their types were compared
                return False
        return True


def _pairs_of(before: Sequence[int], now: Sequence[int]) -> Pairs:
    return frozenset((axis - len(now), one, other) for axis, (one, other) in enumerate(zip(before, now, strict=True)))


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
    return node.op.package in _STANDARD and node.op.op_type == "Expand"


@dataclass(frozen=True, slots=True)
class _Group:
    """The values of the nodes that one node of a part stands for, and its own. `fixed` are the sizes of constants that passes
    made, `numbers` the whole numbers among attributes that passes set. `by_axis`: only sizes of one axis are compared.
    """

    values: tuple[str, ...]
    fixed: Pairs
    numbers: frozenset[int]
    by_axis: bool

    @staticmethod
    def of(groups: "Sequence[_Group]", by_axis: bool) -> "_Group":
        """All of these in one."""
        fixed, numbers = (frozenset[Any]().union(*parts) for parts in ([g.fixed for g in groups], [g.numbers for g in groups]))
        return _Group(tuple(dict.fromkeys(name for group in groups for name in group.values)), fixed, numbers, by_axis)

    def fits(self, pairs: Mapping[str, Pairs]) -> bool:
        """Whether sizes that were equal still are, and none that changed is an attribute."""
        found = self.fixed.union(*{pairs[name] for name in self.values if name in pairs})
        if not self.by_axis:
            found = frozenset((0, one, now) for _, one, now in found)
        before = {(axis, one) for axis, one, _ in found}
        return len(before) == len(found) and not any(one in self.numbers and one != now for _, one, now in found)


def _origins(analyzed: Graph, bodies: Bodies) -> Mapping[str, list[Node]]:
    """The analyzed nodes by the names that nodes of the parts have, as their own or for origins."""
    found = {node.name: [node] for node in analyzed.nodes}
    for node in (node for _, body in bodies.values() for node in body.nodes if node.name in found):
        for name in node.origins:  # those of the node that was expanded
            found.setdefault(name, []).append(found[node.name][0])
    return found


def _groups(analyzed: Graph, parts: Sequence[Any], origins: Mapping[str, list[Node]], widened: Container[str]) -> list[_Group]:
    """One for each node of the parts that a pass made or gave a layout, and for each node that none of the parts stands for."""
    own, arrays = {id(node.op) for node in analyzed.nodes}, {id(array) for array in analyzed.constants.values()}
    left = {node.name: node for node in analyzed.nodes}
    groups: dict[_Group, None] = {}
    for graph in (part.graph for part in parts):
        made = {n: array.shape for n, array in graph.constants.items() if id(array) not in arrays and n not in widened}
        for node in graph.nodes:
            nodes = _stood_for(node, origins)
            for one in nodes:
                left.pop(one.name, None)
            if [node] == nodes and all(graph.types[name].layout == PLAIN for name in (*node.reads, *node.writes)):
                continue  # it means for all sizes what the model says
            values = dict.fromkeys(name for one in (*nodes, node) for name in _values(one, (analyzed.constants, graph.constants)))
            fixed = frozenset[Any]().union(*(_pairs_of(made[name], made[name]) for name in values if name in made))
            by_axis = all(_is_by_axis(one, (analyzed.constants, graph.constants)) for one in (*nodes, node))
            numbers = () if id(node.op) in own else _numbers(node)
            groups[_Group(tuple(values), fixed, frozenset(numbers), by_axis)] = None
    known = (analyzed.constants,)
    others = (_Group(tuple(_values(n, known)), frozenset(), frozenset(), _is_by_axis(n, known)) for n in left.values())
    return [*groups, *others]


def _stood_for(node: Node, origins: Mapping[str, list[Node]]) -> list[Node]:
    """The analyzed nodes that a node of a part stands for."""
    return [*dict.fromkeys(one for name in (node.name, *node.origins) for one in origins.get(name, ()))]


def _is_by_axis(node: Node, constants: Sequence[Container[str]]) -> bool:
    by_constant = any(node.inputs[1] in some for some in constants if len(node.inputs) > 1)
    return node.op.in_place or _is_one_of(_BY_AXIS, node) or (by_constant and _is_one_of(_PRODUCTS, node))


def _is_one_of(names: frozenset[str], node: Node) -> bool:
    return node.op.package in _STANDARD and node.op.op_type.removeprefix("Quantized") in names


def _values(node: Node, constants: Sequence[Container[str]]) -> Sequence[str]:
    """The values of a node whose sizes matter. Not the weights of a product, which decide nothing by their sizes, and for a view
    not what says only which shape it has.
    """
    if node.op.is_view and not node.post_ops:
        return (*node.inputs[:1], *node.writes)
    if _is_one_of(_CONVOLUTIONS | _PRODUCTS, node):
        weights = {name for name in node.inputs if any(name in some for some in constants)}
        return (*(name for name in node.reads if name not in weights), *node.writes)
    return (*node.reads, *node.writes)


def _numbers(node: Node) -> Iterable[int]:
    for name in node.op.attributes:
        value = getattr(node.op, name)
        yield from (one for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, int))


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
        stood_for = [node for one in nodes for node in (*_stood_for(one, origins), one)]
        values = dict.fromkeys(value for node in stood_for for value in (*node.reads, *node.writes) if value in types)
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
