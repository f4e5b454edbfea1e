"""Rotary embeddings as models export them, x * c + (-x2, x1) * s: the operator, and the pass that makes it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.device import Binary, Graph, Node, TensorType, TypedNode
from dovetail.op import AbstractOperator, Port
from dovetail.passes import drop_dead_nodes, represented_by
from dovetail_gpu_opencl.kernels._columns import columns_of
from dovetail_gpu_opencl.kernels._merging import Makers, merge
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.neg import Neg

__all__ = ["RotatedHalves", "merge_rotations"]

RANK = 4


@dataclass(frozen=True, eq=False)
class RotatedHalves(AbstractOperator):
    """X * C + R * S; R are the halves of X's last axis, the second one, negated, before the first one. C and S broadcast to X.

    Perhaps of a second value in the same way, of four axes like X, which differs from it in its heads, the second axis.
    """

    domain: ClassVar[str] = "dovetail.opencl"
    op_type: ClassVar[str] = "RotatedHalves"
    stem: ClassVar[str] = "rotated_halves"
    inputs: ClassVar[tuple[Port, ...]] = (Port("X"), Port("C"), Port("S"), Port("X2", optional=True))
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y"), Port("Y2", optional=True))

    def infer(self, X: TensorType, C: TensorType, S: TensorType, X2: TensorType | None = None) -> tuple[TensorType, ...]:
        return tuple(x.with_shape(x.shape) for x in (X, X2) if x is not None)

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return 3 * sum(output.size for output in outputs)


def merge_rotations(graph: Graph, accepts: Callable[[TypedNode], bool]) -> Graph:
    """The graph with one node in place of each rotation, whose products nothing else reads.

    `accepts` says whether a kernel runs the new node.
    """

    def find(makers: Makers, node: Node) -> tuple[Sequence[Node], Node] | None:
        for plain, turned, others in _sums(graph, makers, node):
            for x, cosines in (plain, plain[::-1]):
                for rotated, sines in (turned, turned[::-1]):
                    types = [graph.types[name] for name in (x, cosines, sines)]
                    if _is_rotated(graph, makers, rotated, x) and types[0].dims == graph.types[node.writes[0]].dims:
                        new = Node(
                            node.name, RotatedHalves(), (x, cosines, sines), node.writes, (), represented_by(*others, node)
                        )
                        return others, new
        return None

    merged = merge(graph, find, accepts)
    return graph if merged is graph else drop_dead_nodes(merged)


def _sums(graph: Graph, makers: Makers, node: Node) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], list[Node]]]:
    """The factors of both products of which the node is the sum, either way round, and the other nodes that make it."""
    products: list[Node | None] = []
    if isinstance(node.op, Add) and not node.post_ops:
        products = [makers.get(name) for name in node.inputs]
    elif isinstance(node.op, Mul) and len(node.post_ops) == 1:
        (post,) = node.post_ops
        if isinstance(post, Binary) and post.algorithm == "add":
            products = [node, makers.get(post.operand)]
    found = [p for p in products if p is not None and isinstance(p.op, Mul) and (p is node or _is_alone(graph, p, node))]
    if len(found) == 2 and found[0] is not found[1]:
        others = [p for p in found if p is not node]
        for one, other in (found, found[::-1]):
            yield one.inputs, other.inputs, others


def _is_alone(graph: Graph, product: Node, reader: Node) -> bool:
    result = product.writes[0]
    return not product.post_ops and result not in graph.outputs and graph.consumers[result] == (reader,)


def _is_rotated(graph: Graph, makers: Makers, name: str, x: str) -> bool:
    """Whether a value has the halves of the other one, the second one negated before the first one."""
    joined = makers.get(name)
    width = graph.types[x].dims[-1] if graph.types[x].rank else 0
    if joined is None or not isinstance(joined.op, Concat) or joined.post_ops or len(joined.inputs) != 2 or width % 2:
        return False
    if joined.op.axis not in (-1, graph.types[x].rank - 1) or graph.types[name].dims != graph.types[x].dims:
        return False
    negated = makers.get(joined.inputs[0])
    if negated is None or not isinstance(negated.op, Neg) or negated.post_ops:
        return False
    first, second = columns_of(joined.inputs[1], graph), columns_of(negated.inputs[0], graph)
    return first == (x, (0, width // 2)) and second == (x, (width // 2, width))
