"""The decisions of passes for a plan that hold for other input sizes too: see `take_over`."""

import weakref
from collections import Counter
from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.errors import raised_by_handler
from dovetail.graph import DType, Graph, Layout, Node, TensorType, as_constant
from dovetail.passes import PassContext
from dovetail_ops_onnx.passes import WIDENED
from dovetail_ops_onnx.passes._equal_sizes import STANDARD, Group, Pairs, groups_of, images, origins_of, pairs_of, stood_for
from dovetail_ops_onnx.passes._typed_again import Bodies, TypedAgain, operator_key
from dovetail_ops_onnx.passes.take_over import SMALL, names_of
from dovetail_ops_onnx.reshape import Reshape

__all__ = ["Decisions"]


class Decisions:
    """The nodes and layouts of a plan, and what must not change for them to hold in other sizes.

    `varying` are the constants that differ from plan to plan, `bodies` what compositions replaced, `waits` what waits for data.
    """

    def __init__(self, graph: Graph, varying: frozenset[str], planned: Any, bodies: Bodies, waits: Any) -> None:
        analyzed, parts = planned.analyzed, planned.parts
        deferred = () if waits is None else ((*waits.ready, *waits.rest.nodes), waits.containers)
        self._again = TypedAgain.of(graph, varying, analyzed, bodies, *deferred)
        graph = graph.replace(constants={name: array for name, array in graph.constants.items() if name not in varying})
        widened = _widened(graph, analyzed, parts)
        nothing = Graph((), planned.whole.inputs, planned.whole.outputs, name=graph.name)
        self._planned = replace(planned, whole=nothing, parts=(), analyzed=nothing)
        names = dict.fromkeys(names_of(analyzed))
        self._by_type: dict[tuple[Any, Any], list[str]] = {}
        for name in names.keys() - graph.constants.keys():
            self._by_type.setdefault((analyzed.types[name].dtype, analyzed.types[name].dims), []).append(name)
        by_type = [(key, [name for name in names if name in graph.inputs]) for key, names in self._by_type.items()]
        self._inputs_by_type = [(key, names) for key, names in by_type if names]
        self._fixed = {n: pairs_of(d, d) for n in names if n in graph.constants and (d := analyzed.types[n].dims)}
        self._constants = tuple(analyzed.constants)
        own = {name for _, body in bodies.values() for name in body.constants}
        self._same = {
            name: array if array.size <= SMALL else weakref.ref(array)
            for name, array in analyzed.constants.items()
            if graph.constants.get(name) is array or array.size <= SMALL or name in own
        }
        self._free = _free(analyzed, parts, widened)
        origins = origins_of(analyzed, bodies)
        self._parts = [_Template.of(part, analyzed, origins, widened, graph.constants.keys()) for part in parts]
        self._groups = groups_of(analyzed, parts, origins, widened)
        self._images = images(analyzed, parts, origins)
        self._wholes = [Group.of([group for group in self._groups if group.by_axis is kind], kind) for kind in (False, True)]
        new = [part.graph.constants[name] for part, one in zip(parts, self._parts, strict=True) for name in one.made]
        # A new constant of whole numbers may be made of sizes, which bytes are not.
        is_made = any(a.dtype.kind in "iuOSU" and a.dtype.itemsize > 1 for a in new)
        # Constants that a pass made, of which only their own plan knows, may be outputs.
        folded = planned.whole.constants.keys() - analyzed.constants.keys()
        self._holds = not is_made and names.keys() >= {*nothing.outputs} and folded.isdisjoint(nothing.outputs)

    def resized(self, graph: Graph, context: PassContext) -> Any:
        """The plan for the sizes of this graph; None where the decisions do not hold."""
        types = self._types(graph, context)
        try:
            parts = None if types is None else [one.resized(types, context.limit) for one in self._parts]
        except Exception as error:  # a new node refuses the sizes: all is planned, with errors that name nodes of the model
            if raised_by_handler(error):
                raise
            return None
        if types is None or parts is None or None in parts:
            return None
        whole = self._planned.whole.replace(constants={name: types[name].value for name in self._constants}, types=types)
        return replace(self._planned, whole=whole, parts=parts)

    def _types(self, graph: Graph, context: PassContext) -> Mapping[str, TensorType] | None:
        """The types of all values; None where the decisions do not hold."""
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
    """A part without types and constants: the `layouts` of all values, and those `known` by the analyzed graph: name, the value
    there, data type and layout.

    `made` are constants that passes made, `shapes` those of them that are the shape of a value, with that value, `views` those
    that are the shape of another one, `again` the nodes whose types are inferred, because passes made them or what they write.
    """

    part: Any
    layouts: Mapping[str, Layout]
    known: tuple[tuple[str, str, DType, Layout], ...]
    made: Mapping[str, "weakref.ref[NDArray[Any]]"]
    shapes: Mapping[str, str]
    views: "Mapping[str, _View]"
    halves: Mapping[str, str]
    again: "tuple[_Inferred, ...]"

    @staticmethod
    def of(
        part: Any, analyzed: Graph, origins: Mapping[str, list[Node]], widened: Mapping[str, str], fixed: Container[str]
    ) -> "_Template":
        """That of a part of a plan; `fixed` are the constants that are the same in all sizes."""
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
        layouts = {name: layout for name, (_, _, layout) in values.items()}
        sources = tuple([(name, *value) for name, value in values.items() if value[0]])
        same = {name for name in graph.constants if name in made or values[name][0] in fixed}
        numbers: dict[Hashable, int | None] = {}
        nodes = tuple([_Inferred.of(node, graph, same, numbers) for node in again])
        return _Template(replace(part, graph=empty), layouts, sources, made, shapes, views, halves, nodes)

    def resized(self, given: Mapping[str, TensorType], limit: int | None) -> Any:
        """The part with other types and constants; None where a new node would compute something else."""
        graph, types = self.part.graph, dict[str, TensorType]()
        moved: dict[tuple[int, DType, Layout], TensorType] = {}  # equal types stay one object
        equal: dict[Hashable, TensorType] = {}
        for name, source, dtype, layout in self.known:
            found = given[source]
            if found.layout is not layout or found.dtype is not dtype:
                key = id(found), dtype, layout
                typed = found if found.dtype is dtype else found.with_dtype(dtype)  # which has no value
                found = moved.get(key) or moved.setdefault(key, typed.with_layout(layout))
            types[name] = found
        constants: dict[str, Any] = {name: types[name].value for name in graph.constants if name in types}
        for name, reference in self.made.items():
            array = reference()
            if array is None:
                return None
            constants[name], types[name] = array, TensorType.of(array, known=True).with_layout(self.layouts[name])
        new = {name: np.asarray(types[value].dims, np.int64) for name, value in self.shapes.items()}
        new.update((name, np.asarray(view.resized(given), np.int64)) for name, view in self.views.items())
        new.update((name, np.asarray(given[half].value, np.float32)) for name, half in self.halves.items())
        for name, made in new.items():
            constant = constants[name] = as_constant(made)
            types[name] = TensorType.of(constant, known=True).with_layout(self.layouts[name])
        inferred: dict[Hashable, Sequence[TensorType]] = {}
        for one in self.again:
            for name, found in zip(one.node.outputs, one.types(types, inferred), strict=False):
                if name and name not in types:
                    asked = found.dtype, found.shape, self.layouts[name]
                    known = equal.get(asked) if found.value is None else None
                    if known is None:
                        known = found.with_layout(self.layouts[name])
                        if found.value is None:
                            equal[asked] = known
                    types[name] = known
                if name and _differ(types[name], found, limit):
                    return None
        return replace(self.part, graph=graph.replace(types=types, constants=constants))


@dataclass(frozen=True, slots=True)
class _Inferred:
    """A node whose types are inferred, with its inputs that are left out at the end.

    Those of one `kind` have the same types where the types of what they read besides constants, `reads`, are the same. None for
    a node that is asked in any case.
    """

    node: Node
    missing: tuple[None, ...]
    kind: int | None
    reads: tuple[str, ...]

    @staticmethod
    def of(node: Node, graph: Graph, fixed: Container[str], numbers: dict[Hashable, int | None]) -> "_Inferred":
        """That of a node of a part, in which the `fixed` constants are the same in all sizes; `numbers` are those of kinds."""
        missing = (None,) * (sum(not port.variadic for port in node.op.inputs) - len(node.inputs))
        inputs = [(name, graph.types[name] if name else None) for name in node.inputs]
        reads = tuple([name for name, t in inputs if t is not None and name not in fixed])
        described = [t and ((t.dtype, t.dims) if name in fixed else (t.dtype, t.rank)) for name, t in inputs]
        key = operator_key(node.op), *described
        if key not in numbers:
            # A content that an operator does not need, it does not need in other sizes either.
            own, without = [t for _, t in inputs], [t and t.with_shape(t.shape) for _, t in inputs]
            numbers[key] = len(numbers) if _types_of(node, without, missing) == _types_of(node, own, missing) else None
        kind = numbers[key]
        return _Inferred(node, missing, kind, reads)

    def types(self, types: Mapping[str, TensorType], known: dict[Hashable, Sequence[TensorType]]) -> Sequence[TensorType]:
        """The types of the outputs, given those of all values; `known` are those of other nodes."""
        key = None if self.kind is None else (self.kind, *[id(types[name]) for name in self.reads])
        found = None if key is None else known.get(key)
        if found is None:
            given = self.node.op.infer(*[types[name] if name else None for name in self.node.inputs], *self.missing)
            found = given if isinstance(given, tuple) else (given,)
            if key is not None:
                known[key] = found
        return found


def _types_of(node: Node, inputs: Sequence[TensorType | None], missing: Sequence[None]) -> object:
    """The static types that the operator infers; something that is equal to no other where it needs more than these inputs."""
    try:
        given = node.op.infer(*inputs, *missing)
    except Exception as error:
        if raised_by_handler(error):
            raise
        return object()
    found = given if isinstance(given, tuple) else (given,)
    return found if all(t.is_static and t.value is None for t in found) else object()


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
