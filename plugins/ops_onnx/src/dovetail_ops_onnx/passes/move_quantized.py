"""Move quantized: operators that only move or select elements work on stored numbers, not on the real ones around them."""

import dataclasses
import math
from collections.abc import Callable
from operator import is_
from typing import TYPE_CHECKING, cast

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.graph import AbstractOperator, DType, Graph, Node, TensorType, as_constant
from dovetail.passes import drop_dead_nodes, represented_by
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.passes import is_one
from dovetail_ops_onnx.passes._scalings import STORED, is_move, scaling_of, takes
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnx.quantized import Scaling

if TYPE_CHECKING:
    from dovetail_ops_onnx.transpose import Transpose

__all__ = ["move_quantized"]

Keeps = Callable[[Node, Graph], bool]


def move_quantized(graph: Graph, keeps: Keeps) -> Graph:
    """The graph in which nodes that only move elements do so with stored numbers, between values that are quantized.

    DequantizeLinear goes behind such nodes where something quantized reads their results, and QuantizeLinear before them where
    nothing else does; both commute with moving, so results have the same bits. A QuantizeLinear that then undoes a
    DequantizeLinear is dropped. Concat takes inputs of other scales brought to that of its readers. A node moves where `keeps`
    holds for it on stored numbers. Needs types and schedule order.
    """
    moving = _Moving(graph, keeps)
    return moving.run() if moving.wanted else graph


@dataclass(frozen=True)
class _Stored:
    """A value as stored numbers; `node` is a DequantizeLinear with the operator and parameters that make them real."""

    name: str
    node: Node
    scaling: Scaling


class _Moving:
    def __init__(self, graph: Graph, keeps: Keeps) -> None:
        self._graph, self._keeps = graph, keeps
        self._constants, self._types = dict(graph.constants), dict(graph.types)
        self._scope = graph.replace(constants=self._constants, types=self._types)  # with what is added later
        self._nodes: list[Node] = []
        self._stored: dict[str, _Stored] = {}
        self._same: dict[str, str] = {}
        self._targets: dict[str, Node | None] = {}
        self.wanted = self._wanted()

    def run(self) -> Graph:
        """Each node in turn, as it is or on stored numbers."""
        for node in self._graph.nodes:
            if any(name in self._same for name in node.inputs):
                node = dataclasses.replace(node, inputs=tuple(self._same.get(name, name) for name in node.inputs))
            if isinstance(node.op, QuantizeLinear) and self._undoes(node):
                continue
            if self.wanted.isdisjoint(node.writes) or not is_move(node.op) or not self._move(node):
                self._nodes.append(node)
            if isinstance(node.op, DequantizeLinear):
                self._note(node)
        nodes = tuple(self._nodes)
        if len(nodes) == len(self._graph.nodes) and all(map(is_, nodes, self._graph.nodes)):
            return self._graph
        outputs = tuple(self._same.get(name, name) for name in self._graph.outputs)
        return drop_dead_nodes(self._graph.replace(nodes=nodes, outputs=outputs, constants=self._constants, types=self._types))

    # --- which values ----------------------------------------------------------------------------------------------

    def _wanted(self) -> frozenset[str]:
        """The values that something quantized reads, directly or moved, of those that are dequantized or will be quantized."""
        real: set[str] = set()
        for node in self._graph.nodes:
            moved = node.inputs if is_one(node.op, "Concat") else node.inputs[:1] if is_move(node.op) else ()
            if isinstance(node.op, DequantizeLinear) or any(name in real for name in moved):
                real.update(node.writes)
        wanted: set[str] = set()
        for node in reversed(self._graph.nodes):
            if isinstance(node.op, QuantizeLinear) or (is_move(node.op) and not wanted.isdisjoint(node.writes)):
                wanted.update(node.inputs if is_one(node.op, "Concat") else node.inputs[:1])
            elif is_one(node.op, "Conv", "Gemm", "MatMul") and real.issuperset(node.inputs[:2]):
                wanted.update(node.inputs[:2])
        return frozenset(wanted)

    def _target(self, value: str) -> Node | None:
        """A QuantizeLinear that stands for all that read the value, where these are equal; elements may be moved before it."""
        if value not in self._targets:
            self._targets[value] = None if value in self._graph.outputs else self._common(value)
        return self._targets[value]

    def _common(self, value: str) -> Node | None:
        found: list[Node | None] = []
        for reader in self._graph.consumers.get(value, ()):
            if isinstance(reader.op, QuantizeLinear):
                found.append(reader)
            elif not is_move(reader.op) or is_one(reader.op, "MaxPool") or value not in reader.inputs:
                return None  # a maximum passes NaN on, which stored numbers lack
            else:
                found += [self._target(name) for name in reader.writes]
        scalings = [None if one is None else scaling_of(one, self._graph) for one in found]
        first = scalings[0] if scalings else None
        if first is None or not first.is_single or first.dtype not in STORED:
            return None
        return found[0] if all(one is not None and first.equals(one) for one in scalings) else None

    # --- nodes -----------------------------------------------------------------------------------------------------

    def _note(self, node: Node) -> None:
        """Remember which stored numbers a DequantizeLinear makes real."""
        scaling = scaling_of(node, self._scope)
        if scaling is not None and scaling.dtype in STORED and self._types[node.writes[0]].dtype is DType.FLOAT32:
            self._stored[node.writes[0]] = _Stored(node.inputs[0], node, scaling)

    def _undoes(self, node: Node) -> bool:
        """Whether the result is what the value was dequantized from; then readers take that."""
        (value,), stored = node.writes, self._stored.get(node.inputs[0])
        if stored is None or node.post_ops:
            return False
        scaling = scaling_of(node, self._graph)
        if (
            scaling is None
            or not scaling.equals(stored.scaling)
            or not (scaling.is_single or scaling.axis == stored.scaling.axis)
        ):
            return False
        if any(value not in reader.inputs for reader in self._graph.consumers.get(value, ())):
            return False
        self._same[value] = stored.name
        return True

    def _move(self, node: Node) -> bool:
        """Add the node on stored numbers, and DequantizeLinear of its results; False where that cannot be."""
        if node.post_ops:
            return False
        inputs = self._joined(node) if is_one(node.op, "Concat") else self._single(node)
        if not inputs:
            return False
        stored = [one.name for one in inputs]
        moved = dataclasses.replace(
            node,
            inputs=(*stored, *node.inputs[len(stored) :]),
            outputs=tuple(name and self._name(name) for name in node.outputs),
        )
        dtype = inputs[0].scaling.dtype
        types = {self._name(name): self._types[name].with_dtype(dtype) for name in node.writes}
        reals = [(name, self._behind(node, name, inputs[0])) for name in node.writes]
        scope = self._graph.replace(constants=self._constants, types={**self._types, **types})
        given = [scope.types[name] if name else None for name in moved.inputs]
        if any(one is None for _, one in reals) or not takes(node.op, given):
            return False
        if all(name in self._constants for name in moved.reads):
            found = node.op.reference(*(self._constants[name] if name else None for name in moved.inputs))
            for name, array in zip(moved.outputs, found if isinstance(found, tuple) else (found,), strict=True):
                self._constants[name] = as_constant(array)
                types[name] = TensorType.of(self._constants[name], known=True)
        elif node.op.is_view or self._keeps(moved, scope):
            self._nodes.append(moved)
        else:
            return False
        self._types.update(types)
        for _, real in reals:
            assert real is not None
            self._nodes.append(real)
            self._note(real)
        return True

    def _behind(self, node: Node, name: str, source: _Stored) -> Node | None:
        """DequantizeLinear of a result, whose scales are along the axis to which the node moves that of the source."""
        op, scaling = source.node.op, source.scaling
        if not scaling.is_single:
            axis = _moved_axis(node.op, scaling.axis, self._types[source.name].dims, self._types[name].dims)
            if axis is None:
                return None
            assert isinstance(op, DequantizeLinear)
            op = dataclasses.replace(op, axis=axis)
        origins = represented_by(source.node)
        return Node(self._graph.free_name(f"{name}@real"), op, (self._name(name), *source.node.inputs[1:]), (name,), (), origins)

    def _name(self, value: str) -> str:
        """The name of the stored numbers of a value that a node of this graph gives."""
        return self._graph.free_name(f"{value}@stored")

    # --- stored inputs ---------------------------------------------------------------------------------------------

    def _single(self, node: Node) -> list[_Stored]:
        """Input 0 of the node, quantized here if all readers do that later; none where it is real, or fewer elements are read."""
        name = node.inputs[0]
        if name in self._stored:
            return [self._stored[name]]
        target = None if name in self._constants else self._target(name)
        if target is None or sum(self._types[one].size for one in node.writes) < self._types[name].size:
            return []
        self._stored[name] = self._quantized(name, self._name(name), target)
        return [self._stored[name]]

    def _joined(self, node: Node) -> list[_Stored]:
        """The inputs of Concat in one quantization: theirs, or that of all readers; none where there is none."""
        known = [self._stored.get(name) for name in node.inputs]
        first = known[0]
        if first is not None and all(one is not None and one.scaling.equals(first.scaling) for one in known):
            return [one for one in known if one is not None] if first.scaling.is_single else []
        target = self._target(node.writes[0])
        wanted = None if target is None else scaling_of(target, self._graph)
        if target is None or wanted is None:
            return []
        if any(one is None and self._target(name) is None for name, one in zip(node.inputs, known, strict=True)):
            return []  # it is real for others too
        others = [one for one in known if one is not None and not one.scaling.equals(wanted)]
        if not all(self._is_translated(one, wanted) for one in others):
            return []
        found = []
        for index, (name, one) in enumerate(zip(node.inputs, known, strict=True)):
            is_same = one is not None and one.scaling.equals(wanted)
            stored = self._graph.free_name(f"{node.writes[0]}@{index}")
            found.append(one if one is not None and is_same else self._quantized(name, stored, target))
        return found

    def _is_translated(self, one: _Stored, wanted: Scaling) -> bool:
        """Whether the stored numbers become those of another quantization by a table."""
        stored = self._types[one.name]
        table = np.zeros(256, wanted.dtype.numpy)
        scope = {**self._types, "table": TensorType.of(table, known=True), "found": stored.with_dtype(wanted.dtype)}
        from dovetail_ops_onnx.byte_table import ByteTable  # here, because few models have values of several scales

        made = Node("table", ByteTable(), (one.name, "table"), ("found",))
        graph = self._graph.replace(constants={**self._constants, "table": table}, types=scope)
        return one.scaling.is_single and self._keeps(made, graph)

    def _quantized(self, name: str, stored: str, target: Node) -> _Stored:
        """A value quantized as `target` does it."""
        scaling = scaling_of(target, self._graph)
        assert scaling is not None
        origins = represented_by(target)
        self._nodes.append(
            dataclasses.replace(target, name=stored, inputs=(name, *target.inputs[1:]), outputs=(stored,), origins=origins)
        )
        self._types[stored] = self._types[name].with_dtype(scaling.dtype)
        name_of_real = self._graph.free_name(f"{stored}@real")
        real = Node(name_of_real, DequantizeLinear(axis=scaling.axis), (stored, *target.inputs[1:]), (name,), (), origins)
        return _Stored(stored, real, scaling)


def _moved_axis(op: AbstractOperator, axis: int, before: tuple[int, ...], after: tuple[int, ...]) -> int | None:
    """Where the axis of the input is in the result of a transpose or a view; None where it is none there."""
    axis %= len(before)
    if is_one(op, "Transpose") and not op.is_view:
        return cast("Transpose", op).order(len(before)).index(axis)
    outside = math.prod(before[:axis])
    places = range(len(after)) if op.is_view and not is_one(op, "Transpose") else ()
    return next((at for at in places if after[at] == before[axis] and math.prod(after[:at]) == outside), None)
