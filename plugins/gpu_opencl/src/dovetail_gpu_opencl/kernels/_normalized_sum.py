"""Sums of embeddings that are normalized: the operator, and the pass that makes it, which saves three launches."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.device import Binary, DType, Graph, Node, TensorType, TypedNode
from dovetail.op import AbstractOperator, Port
from dovetail.passes import represented_by
from dovetail_gpu_opencl.kernels._merging import Makers, merge
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.layer_normalization import LayerNormalization

__all__ = ["NormalizedSum", "merge_sums"]


@dataclass(frozen=True, eq=False)
class NormalizedSum(AbstractOperator):
    """LayerNormalization, over the last axis, of a sum of rows, some of which are looked up in tables.

    Inputs are Scale and B of the normalization, a table and its indices for each of `gathered` addends, then other addends, whose
    rows repeat. The sum is float32, the result of type `dtype`.
    """

    domain: ClassVar[str] = "dovetail.opencl"
    op_type: ClassVar[str] = "NormalizedSum"
    stem: ClassVar[str] = "normalized_sum"
    inputs: ClassVar[tuple[Port, ...]] = (Port("Scale"), Port("Shift"), Port("addends", variadic=True))
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y"),)

    gathered: int
    epsilon: float
    dtype: DType

    def infer(self, Scale: TensorType, Shift: TensorType | None, *addends: TensorType) -> TensorType:
        table, indices = addends[:2]
        return TensorType(self.dtype, (*indices.dims, table.dims[1]))

    @property
    def tables(self) -> list[tuple[int, int]]:
        """The positions of each table and its indices among the inputs."""
        return [(2 + 2 * i, 3 + 2 * i) for i in range(self.gathered)]

    def others(self, node: TypedNode) -> range:
        """The positions of the other addends."""
        return range(2 + 2 * self.gathered, len(node.inputs))

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return 10 * outputs[0].size


def merge_sums(graph: Graph, accepts: Callable[[TypedNode], bool]) -> Graph:
    """The graph with one node in place of each LayerNormalization of a sum of embeddings, which nothing else reads.

    `accepts` says whether a kernel runs the new node.
    """

    def find(makers: Makers, node: Node) -> tuple[Sequence[Node], Node] | None:
        total = makers.get(node.inputs[0]) if isinstance(node.op, LayerNormalization) else None
        if total is None or not _is_sum(graph, total, node):
            return None
        names = [*total.inputs, *total.operands]
        found = {name: makers[name] for name in names if _is_lookup(graph, makers.get(name), total)}
        others = tuple(name for name in names if name not in found)
        if not found or not all(_repeats(graph.types[name], graph.types[total.writes[0]]) for name in others):
            return None
        return [total, *found.values()], _merged(node, total, tuple(found.values()), others, graph.types[node.writes[0]].dtype)

    return merge(graph, find, accepts)


def _is_sum(graph: Graph, total: Node, node: Node) -> bool:
    """Whether only a plain normalization of the last axis, with one output, reads the node, which only adds."""
    result = total.writes[0]
    assert isinstance(node.op, LayerNormalization)
    if not isinstance(total.op, Add) or not all(isinstance(p, Binary) and p.algorithm == "add" for p in total.post_ops):
        return False
    last = node.op.axis in (-1, graph.types[result].rank - 1) and not node.post_ops
    return last and len(node.writes) == 1 and result not in graph.outputs and graph.consumers[result] == (node,)


def _is_lookup(graph: Graph, maker: Node | None, total: Node) -> bool:
    """Whether rows of a matrix are gathered for the sum alone, one for each of its rows."""
    if maker is None or not isinstance(maker.op, Gather) or maker.post_ops or graph.types[maker.inputs[0]].rank != 2:
        return False
    result = maker.writes[0]
    alone = result not in graph.outputs and graph.consumers[result] == (total,)
    read_once = [*total.inputs, *total.operands].count(result) == 1
    return alone and read_once and maker.op.axis in (0, -2) and graph.types[result].dims == graph.types[total.writes[0]].dims


def _repeats(addend: TensorType, result: TensorType) -> bool:
    """Whether the rows of the addend are those of the last axes of the result."""
    first = next((axis for axis, size in enumerate(addend.dims) if size != 1), addend.rank)
    own = addend.dims[first:]
    return bool(own) and own == result.dims[-len(own) :]


def _merged(node: Node, total: Node, lookups: Sequence[Node], others: Sequence[str], dtype: DType) -> Node:
    assert isinstance(node.op, LayerNormalization)
    shift = node.inputs[2] if len(node.inputs) > 2 else ""
    tables = [name for lookup in lookups for name in lookup.inputs]
    op = NormalizedSum(len(lookups), node.op.epsilon, dtype)
    inputs, stands_for = (node.inputs[1], shift, *tables, *others), represented_by(*lookups, total, node)
    return dataclasses.replace(node, op=op, inputs=inputs, outputs=node.writes, origins=stands_for)
