"""Several slices of one value: the operator that is one launch for all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.device import Graph, Node, TensorType, TypedNode
from dovetail.op import AbstractOperator, Port
from dovetail_gpu_opencl.kernels._merging import origins
from dovetail_ops_onnx.slice import Slice

__all__ = ["JoinedSlices", "join_slices"]


@dataclass(frozen=True, eq=False)
class JoinedSlices(AbstractOperator):
    """Slices of one value. Inputs are the value, then the bounds of each slice; `counts` are their numbers."""

    domain: ClassVar[str] = "dovetail.opencl"
    op_type: ClassVar[str] = "JoinedSlices"
    stem: ClassVar[str] = "joined_slices"
    inputs: ClassVar[tuple[Port, ...]] = (Port("data"), Port("bounds", variadic=True))
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y", variadic=True),)

    slices: tuple[Slice, ...]
    counts: tuple[int, ...]

    def parts(self, node: TypedNode) -> list[TypedNode]:
        """The slices as nodes."""
        found, first = [], 1
        for index, (op, count) in enumerate(zip(self.slices, self.counts, strict=True)):
            places = (0, *range(first, first + count))
            first += count
            part = Node(node.name, op, tuple(node.node.inputs[i] for i in places), (node.node.outputs[index],))
            found.append(TypedNode(part, tuple(node.inputs[i] for i in places), (node.outputs[index],)))
        return found

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        """The types of the slices."""
        found, first = [], 1
        assert types[0] is not None
        for op, count in zip(self.slices, self.counts, strict=True):
            found.append(op.infer(types[0], *types[first : first + count]))
            first += count
        return tuple(found)


def join_slices(graph: Graph, nodes: Sequence[Node]) -> Mapping[str, Node | None]:
    """By name, what replaces these slices of one value: one node in place of the first."""
    if len(nodes) < 2:
        return {}
    first, *others = nodes
    op = JoinedSlices(tuple(node.op for node in nodes if isinstance(node.op, Slice)), tuple(len(n.inputs) - 1 for n in nodes))
    inputs = (first.inputs[0], *(name for node in nodes for name in node.inputs[1:]))
    joined = Node(first.name, op, inputs, tuple(node.outputs[0] for node in nodes), (), origins(*nodes))
    return {first.name: joined, **dict.fromkeys((node.name for node in others), None)}
