"""Elementwise nodes that only each other read as one expression: the operator, and the pass that makes it.

The fusion pass merges chains into the node before them. It leaves trees, such as sums of products or quotients of functions,
and functions of what a reduction or a running sum reads.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

from dovetail.device import DType, Eltwise, Graph, Node, TensorType, TypedNode, padded
from dovetail.errors import ShapeError
from dovetail.op import AbstractOperator, Port
from dovetail.passes import represented_by
from dovetail_gpu_opencl.broadcast import broadcasts
from dovetail_gpu_opencl.elementwise import Elementwise
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_ops_onnx.cast import Cast

__all__ = ["FusedElementwise", "fuse_elementwise"]

_MOST_VALUES, _MOST_NODES = 14, 24
"""Values that one launch reads, each of which takes the host time, and nodes."""
_REPEATED = 1 << 21
"""Elements up to which what broadcasts is computed again for each: another launch takes longer."""

Places = tuple[int | None, ...]
"""For each axis of a value that of the expression; None for one of one element that it lacks."""


@dataclass(frozen=True, eq=False)
class FusedElementwise(AbstractOperator):
    """Elementwise `nodes`, in order, of the values `reads`; the last one's is the result, or input 0 of `reader`.

    Inputs are those values, then the other inputs of the reader. `makers` are the names of the kernels that know how the nodes
    compute an element; `places` has the axes of all values of the expression, `dims` are its sizes.
    """

    domain: ClassVar[str] = "dovetail.opencl"
    op_type: ClassVar[str] = "FusedElementwise"
    stem: ClassVar[str] = "fused_elementwise"
    inputs: ClassVar[tuple[Port, ...]] = (Port("X", variadic=True),)
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y"),)

    nodes: tuple[TypedNode, ...]
    makers: tuple[str, ...]
    reads: tuple[str, ...]
    places: Mapping[str, Places]
    dims: tuple[int, ...]
    reader: Node | None = None

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        """The type of the expression, or those of the reader's results. Raises `ShapeError` for what does not broadcast."""
        axes = range(len(self.dims))
        result = self.result(axes)
        for name, tensor in self.given(types, axes).items():
            if not broadcasts(tensor, result):
                raise ShapeError(f"'{name}' is {tensor}, which does not broadcast to {result}")
        if self.reader is None:
            return (result,)
        found = self.reader.op.infer(*padded((result, *types[len(self.reads) :]), self.reader.op.inputs))
        return found if isinstance(found, tuple) else (found,)

    @property
    def is_aligned(self) -> bool:
        """Whether all values have the last axes of the expression: no node is behind a view."""
        rank = len(self.dims)
        return all(places == (*range(rank - len(places), rank),) for places in self.places.values())

    def placed(self, order: Sequence[int]) -> list[TypedNode]:
        """The nodes with the types that their values have in the expression, with axes in this order."""
        return [self._placed(node, order) for node in self.nodes]

    def given(self, types: Sequence[TensorType | None], order: Sequence[int]) -> dict[str, TensorType]:
        """The types of the values that are read, of those of the inputs, with the axes of the expression in this order."""
        found = zip(self.reads, types, strict=False)
        return {name: self._type(name, t, order) for name, t in found if t is not None}

    def result(self, order: Sequence[int]) -> TensorType:
        """The type of the expression."""
        return TensorType(self.nodes[-1].outputs[0].dtype, tuple(self.dims[axis] for axis in order))

    def _placed(self, node: TypedNode, order: Sequence[int]) -> TypedNode:
        def types(names: Sequence[str], found: Sequence[TensorType | None]) -> tuple[TensorType | None, ...]:
            return tuple(t and self._type(name, t, order) for name, t in zip(names, found, strict=True))

        one = node.node
        inputs, outputs, operands = (
            types(one.inputs, node.inputs),
            types(one.writes, node.outputs),
            types(one.operands, node.operands),
        )
        return TypedNode(one, inputs, tuple(t for t in outputs if t), tuple(t for t in operands if t))

    def _type(self, name: str, tensor: TensorType, order: Sequence[int]) -> TensorType:
        dims = [1] * len(self.dims)
        for size, place in zip(tensor.dims, self.places[name], strict=True):
            if place is not None:
                dims[place] = size
        return TensorType(tensor.dtype, tuple(dims[axis] for axis in order), tensor.value)


def fuse_elementwise(
    graph: Graph, kernel_of: Callable[[TypedNode], CLKernel | None], accepts: Callable[[TypedNode], bool]
) -> Graph:
    """The graph with elementwise nodes in the launch of the only node that reads them: an elementwise one, or a reduction.

    `kernel_of` gives the kernel of a node, `accepts` says whether a kernel runs a merged one.
    """
    changed: dict[str, Node | None] = {}
    order = {name: place for place, node in enumerate(graph.nodes) for name in node.writes}
    for node in reversed(graph.nodes):
        if node.name in changed or node.op.is_view or len(node.writes) != 1:
            continue
        tree = _Tree(graph, order, kernel_of)
        merged = tree.ending(node)
        if merged is not None and accepts(TypedNode.of(merged, graph)):
            changed |= {**dict.fromkeys(tree.gone), node.name: merged}
    kept = [changed.get(node.name, node) for node in graph.nodes]
    return graph.replace(nodes=tuple(node for node in kept if node is not None)) if changed else graph


class _Tree:
    """The nodes of an expression, found from its end; `gone` has the names of all nodes that it stands for, but the last."""

    def __init__(self, graph: Graph, order: Mapping[str, int], kernel_of: Callable[[TypedNode], CLKernel | None]) -> None:
        self._graph = graph
        self._order = order
        self._kernel_of = kernel_of
        self._nodes: dict[str, tuple[Node, Elementwise]] = {}
        self._places: dict[str, Places] = {}
        self._dims: tuple[int, ...] = ()
        self.gone: list[str] = []

    def ending(self, node: Node) -> Node | None:
        """The node of the expression that ends with this one; None where that would be this one alone."""
        typed = TypedNode.of(node, self._graph)
        kernel = self._kernel_of(typed) if typed.is_static and typed.outputs[0].size else None
        if isinstance(kernel, Elementwise):
            self._dims = typed.outputs[0].dims
            self._places[node.writes[0]] = (*range(len(self._dims)),)
            fits, reader = self._added(node, kernel), None
        elif kernel is not None and kernel.loads_computed(typed):
            self._dims = typed.given(0).dims
            self._places[node.inputs[0]] = (*range(len(self._dims)),)
            fits, reader = True, node
        else:
            return None
        if not fits or not self._grown(reader):
            return None
        found = sorted(self._nodes.values(), key=lambda one: self._order[one[0].writes[0]])
        nodes = tuple(TypedNode.of(one, self._graph) for one, _ in found)
        kernels, reads = tuple(one.name for _, one in found), self._reads()
        op = FusedElementwise(nodes, kernels, reads, self._places, self._dims, reader)
        inputs, post_ops = (reads, ()) if reader is None else ((*reads, *node.inputs[1:]), node.post_ops)
        gone = [one for one in self._graph.nodes if one.name in self.gone]
        return dataclasses.replace(node, op=op, inputs=inputs, post_ops=post_ops, origins=represented_by(*gone, node))

    def _reads(self) -> tuple[str, ...]:
        """The values that the expression reads."""
        made = {name for node, _ in self._nodes.values() for name in node.writes}
        return tuple(name for name in self._places if name not in made)

    def _grown(self, reader: Node | None) -> bool:
        """Adds the nodes that make what the expression reads, the last first; whether there was one."""
        refused = set[str]()
        while names := [n for n in self._reads() if n not in refused and n in self._graph.producers]:
            name = max(names, key=self._order.__getitem__)
            if not self._takes(name, reader):
                refused.add(name)
        return bool(self.gone)

    def _takes(self, name: str, reader: Node | None) -> bool:
        """Adds the node that makes a value, also one before a view, if nothing else reads it and its kernel is elementwise."""
        maker, places = self._graph.producers[name], self._places[name]
        views: list[str] = []
        readers = {*self._nodes} if self._nodes or reader is None else {reader.name}
        while self._is_read_by(maker, readers):
            if not maker.op.is_view or maker.post_ops:
                kernel = self._kernel_of(TypedNode.of(maker, self._graph))
                if not isinstance(kernel, Elementwise) or self._is_apart(maker) or not self._added(maker, kernel, name, places):
                    return False
                self.gone += [maker.name, *views]
                return True
            source = maker.inputs[0]
            found, before = self._before(maker, places), self._graph.producers.get(source)
            if found is None or before is None:
                return False
            views.append(maker.name)
            places, readers, maker = found, {maker.name}, before
        return False

    def _is_read_by(self, maker: Node, readers: Set[str]) -> bool:
        """Whether nothing else reads the only result of a node."""
        if len(maker.writes) != 1 or maker.writes[0] in self._graph.output_names:
            return False
        return {one.name for one in self._graph.consumers.get(maker.writes[0], ())} <= readers

    def _is_apart(self, maker: Node) -> bool:
        """Whether a node rounds for a reason, or should not compute its result for each element again."""
        result = self._graph.types[maker.writes[0]]
        rounds = isinstance(maker.op, Cast) and result.dtype in (DType.FLOAT16, DType.BFLOAT16)
        return rounds or (result.size != math.prod(self._dims) and math.prod(self._dims) > _REPEATED)

    def _before(self, view: Node, places: Places) -> Places | None:
        """The places of what a view reads, of those of its result; None where axes are joined or split."""
        source, result = (self._graph.types[name].dims for name in (view.inputs[0], view.writes[0]))
        axes = [place for size, place in zip(result, places, strict=True) if size != 1]
        if [size for size in source if size != 1] != [size for size in result if size != 1]:
            return None
        left = iter(axes)
        return tuple(None if size == 1 else next(left) for size in source)

    def _added(self, node: Node, kernel: Elementwise, name: str = "", places: Places | None = None) -> bool:
        """Adds a node, whose result is `name` there, at `places`; False where what it reads has none, or would be too much."""
        typed, result = TypedNode.of(node, self._graph), node.writes[0]
        found = dict(self._places)
        if places is not None:
            del found[name]
            found[result] = places
        own = found[result]
        if kernel.steps(typed) is None or len(self._nodes) == _MOST_NODES:
            return False
        for read in node.reads:
            tensor = self._graph.types[read]
            if not broadcasts(tensor, typed.outputs[0]) or tensor.rank > len(own):
                return False
            if found.setdefault(read, own[len(own) - tensor.rank :]) != own[len(own) - tensor.rank :]:
                return False
        made = {result, *(name for one, _ in self._nodes.values() for name in one.writes)}
        if sum(name not in made for name in found) > _MOST_VALUES:
            return False
        if name not in ("", result):
            self._nodes = {key: (_reading(one, name, result), k) for key, (one, k) in self._nodes.items()}
        self._places, self._nodes[node.name] = found, (node, kernel)
        return True


def _reading(node: Node, name: str, other: str) -> Node:
    """The node with another value in place of one that it reads."""
    steps = (p if isinstance(p, Eltwise) or p.operand != name else dataclasses.replace(p, operand=other) for p in node.post_ops)
    return dataclasses.replace(node, inputs=tuple(other if n == name else n for n in node.inputs), post_ops=tuple(steps))
