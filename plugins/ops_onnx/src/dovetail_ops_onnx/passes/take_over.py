"""Take over decisions: a plan for other input sizes gets the nodes, kernels and layouts of an earlier plan of the model.

Everything that depends on sizes is computed anew: types, and what is folded. Everything else is the earlier plan's, where the
same decisions hold: the passes behind stage `bind` do not run.
"""

import weakref
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.graph import DType, Graph, Layout, Node, TensorType
from dovetail.op import PLAIN
from dovetail.passes import PassContext
from dovetail_ops_onnx.passes._typed_again import TypedAgain

__all__ = ["take_over"]

_SMALL = 64
"""Elements up to which constants that sizes may change are kept, to be compared."""

Pairs = frozenset[tuple[int, int]]
"""The sizes of the axes of values, before and now."""


def take_over(graph: Graph, context: PassContext) -> Graph:
    """Take over what passes decided for an earlier plan of the model, where it holds for other input sizes.

    Passes with `any_sizes` decide by data types, ranks, constants, and whether sizes are equal, 0 or 1. So their result holds
    for a graph of the same nodes in which sizes are equal where they were (compared are those of all values that the nodes
    touch which one node of the plan stands for), and 0 or 1 where they were; in which no other size is an attribute of a new
    node; and in which constants of another content are still read by name. What devices refuse is planned from the beginning.
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
    if not graph.states and all(tensor.is_static for tensor in planned.analyzed.types.values()):
        known.appendleft(_Earlier(graph, planned, context))


def _forget(known: "deque[_Earlier]", one: "_Earlier") -> None:
    with suppress(ValueError):  # another thread may have forgotten it
        known.remove(one)


class _Earlier:
    """The decisions of a plan. Keeps alive no array that a pass or folding made, but for small ones."""

    def __init__(self, graph: Graph, planned: Any, context: PassContext) -> None:
        analyzed, parts, self._graph = planned.analyzed, planned.parts, graph
        self.rules, self.stops = dict(context.notes.rules), dict(context.notes.stops)
        nothing = Graph((), planned.whole.inputs, planned.whole.outputs, name=graph.name)
        self._planned = replace(planned, whole=nothing, parts=(), analyzed=nothing)
        names = dict.fromkeys([*analyzed.outputs, *(name for node in analyzed.nodes for name in (*node.reads, *node.writes))])
        self._by_type: dict[tuple[Any, Any], list[str]] = {}
        for name in names.keys() - graph.constants.keys():
            self._by_type.setdefault((analyzed.types[name].dtype, analyzed.types[name].dims), []).append(name)
        self._fixed = {
            n: frozenset(zip(d, d, strict=True)) for n in names if n in graph.constants and (d := analyzed.types[n].dims)
        }
        self._constants = tuple(analyzed.constants)
        self._same = {
            name: array
            for name, array in analyzed.constants.items()
            if graph.constants.get(name) is array or array.size <= _SMALL
        }
        self._again, self._free = TypedAgain.of(graph, analyzed), _free(analyzed, parts)
        self._parts, self._groups = [_Template.of(part, analyzed) for part in parts], _groups(analyzed, parts)
        self._whole = _Group.of(self._groups)
        known = {id(array) for array in analyzed.constants.values()}
        new = [array for part in parts for array in part.graph.constants.values() if id(array) not in known]
        # A new constant of whole numbers may be a shape.
        self._holds = all(a.dtype.kind not in "iuOSU" for a in new) and names.keys() >= {*nothing.inputs, *nothing.outputs}

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
                    pairs = known[id(now)] = frozenset(zip(dims, now.dims, strict=True))
                    if any(one != other and min(one, other) < 2 for one, other in pairs):
                        return None
                found[name] = pairs
        return found

    def _fits(self, pairs: Mapping[str, Pairs]) -> bool:
        """Whether each group fits; mostly all of them do as one."""
        return self._whole.fits(pairs) or all(group.fits(pairs) for group in self._groups)

    def _reads(self, types: Mapping[str, TensorType]) -> bool:
        """Whether constants are the same, or only read by name."""
        for name in self._constants:
            before, now = self._same.get(name), types[name].value
            if before is now or name in self._free:
                continue
            if before is None or now is None or before.tobytes() != now.tobytes():  # their types were compared
                return False
        return True


def _free(analyzed: Graph, parts: Sequence[Any]) -> frozenset[str]:
    """The constants that only views read, whose types have all there is to know, or that their readers, as nodes of their own or
    in the chain of another, still read by name.
    """
    finals = [node for part in parts for node in part.graph.nodes]
    reads = {(origin, name) for node in finals for origin in (node.name, *node.origins) for name in node.reads}
    bound = {name for node in analyzed.nodes if not node.op.is_view for name in node.reads if (node.name, name) not in reads}
    return frozenset(analyzed.constants.keys() - bound)


@dataclass(frozen=True, slots=True)
class _Group:
    """The values of the nodes that one node of a part stands for, and its own. `fixed` are the sizes of constants that passes
    made, `numbers` the whole numbers among attributes that passes set.
    """

    values: tuple[str, ...]
    fixed: Pairs
    numbers: frozenset[int]

    @staticmethod
    def of(groups: "Sequence[_Group]") -> "_Group":
        """All of these in one."""
        fixed, numbers = (frozenset[Any]().union(*parts) for parts in ([g.fixed for g in groups], [g.numbers for g in groups]))
        return _Group(tuple(dict.fromkeys(name for group in groups for name in group.values)), fixed, numbers)

    def fits(self, pairs: Mapping[str, Pairs]) -> bool:
        """Whether sizes that were equal still are, and none that changed is an attribute."""
        found = self.fixed.union(*{pairs[name] for name in self.values if name in pairs})
        before = {pair[0] for pair in found}
        return len(before) == len(found) and not any(one in self.numbers and one != now for one, now in found)


def _groups(analyzed: Graph, parts: Sequence[Any]) -> list[_Group]:
    """One for each node of the parts that a pass made or gave a layout, and for each node that none of the parts stands for."""
    before, own = {node.name: node for node in analyzed.nodes}, {id(node.op) for node in analyzed.nodes}
    left, arrays = dict(before), {id(array) for array in analyzed.constants.values()}
    groups: dict[_Group, None] = {}
    for graph in (part.graph for part in parts):
        made = {name: array.shape for name, array in graph.constants.items() if id(array) not in arrays}
        for node in graph.nodes:
            nodes = [before[name] for name in dict.fromkeys((node.name, *node.origins)) if name in before]
            for one in nodes:
                left.pop(one.name, None)
            if [node] == nodes and all(graph.types[name].layout == PLAIN for name in (*node.reads, *node.writes)):
                continue  # it means for all sizes what the model says
            values = dict.fromkeys(name for one in (*nodes, node) for name in _values(one, (analyzed.constants, graph.constants)))
            fixed = frozenset((size, size) for name in values if name in made for size in made[name])
            groups[_Group(tuple(values), fixed, frozenset(() if id(node.op) in own else _numbers(node)))] = None
    return [*groups, *(_Group(tuple(_values(node, (analyzed.constants,))), frozenset(), frozenset()) for node in left.values())]


def _values(node: Node, constants: Sequence[Container[str]]) -> Sequence[str]:
    """The values of a node whose sizes matter. Not the weights of a product, which decide nothing by their sizes, and for a view
    not what says only which shape it has.
    """
    if node.op.is_view and not node.post_ops:
        return (*node.inputs[:1], *node.writes)
    if node.op.magnitude == "sum_of_products":
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

    `made` are constants that passes made, `again` the nodes whose types are inferred, because passes made them or what they
    write.
    """

    part: Any
    values: Mapping[str, tuple[str, DType, Layout]]
    made: Mapping[str, "weakref.ref[NDArray[Any]]"]
    again: tuple[Node, ...]

    @staticmethod
    def of(part: Any, analyzed: Graph) -> "_Template":
        """That of a part of a plan."""
        graph, own = part.graph, {id(array): name for name, array in analyzed.constants.items()}
        values: dict[str, tuple[str, DType, Layout]] = {}
        for name in dict.fromkeys([*graph.inputs, *graph.constants, *(n for node in graph.nodes for n in node.writes)]):
            array = graph.constants.get(name)
            source = name if array is None else own.get(id(array), "")
            tensor = graph.types[name]
            values[name] = source if source in analyzed.types else "", tensor.dtype, tensor.layout
        made = {name: weakref.ref(array) for name, array in graph.constants.items() if not values[name][0]}
        ops = {id(node.op) for node in analyzed.nodes}
        again = [n for n in graph.nodes if id(n.op) not in ops or not all(values[name][0] for name in n.writes)]
        empty = graph.replace(types={}, constants=dict.fromkeys(graph.constants))
        return _Template(replace(part, graph=empty), values, made, tuple(again))

    def resized(self, known: Mapping[str, TensorType], limit: int | None) -> Any:
        """The part with other types and constants; None where a new node would compute something else."""
        graph, types, constants = self.part.graph, {}, {}
        moved: dict[tuple[int, DType, Layout], TensorType] = {}  # equal types stay one object
        for name, (source, dtype, layout) in self.values.items():
            if source:
                found = known[source]
                if found.layout is not layout or found.dtype is not dtype:
                    key = id(found), dtype, layout
                    found = moved.get(key) or moved.setdefault(key, found.with_dtype(dtype).with_layout(layout))
                types[name] = found
                if name in graph.constants:
                    constants[name] = found.value
        for name, reference in self.made.items():
            array = reference()
            if array is None:
                return None
            constants[name], types[name] = array, TensorType.of(array, known=True).with_layout(self.values[name][2])
        for node in self.again:
            inputs = [types[name] if name else None for name in node.inputs]
            given = node.op.infer(*inputs, *(None,) * (sum(not p.variadic for p in node.op.inputs) - len(inputs)))
            for name, found in zip(node.outputs, given if isinstance(given, tuple) else (given,), strict=False):
                if name and _differ(types.setdefault(name, found.with_layout(self.values[name][2])), found, limit):
                    return None
        return replace(self.part, graph=graph.replace(types=types, constants=constants))


def _differ(one: TensorType, other: TensorType, limit: int | None) -> bool:
    return (one.dtype, one.shape) != (other.dtype, other.shape) or (limit is not None and one.nbytes > limit)
