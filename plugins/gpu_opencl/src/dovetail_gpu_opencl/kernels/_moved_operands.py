"""Elementwise nodes that read parts of a value where these are, not copies of them: the operator, and the pass that makes it.

So do gated units, which multiply one half of a product's columns by a function of the other half.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from dovetail.device import Graph, Node, TensorType, TypedNode, padded
from dovetail.op import AbstractOperator, Port
from dovetail.passes import represented_by
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.kernels._copy import MoveKernel
from dovetail_gpu_opencl.kernels._joined_moves import JoinedMoves

__all__ = ["MovedOperands", "merge_operands"]


@dataclass(frozen=True, eq=False)
class MovedOperands(AbstractOperator):
    """The elementwise `node` of operands that `moves` make. Inputs are what the moves read, then its other operands."""

    domain: ClassVar[str] = "dovetail.opencl"
    op_type: ClassVar[str] = "MovedOperands"
    stem: ClassVar[str] = "moved_operands"
    inputs: ClassVar[tuple[Port, ...]] = (Port("X", variadic=True),)
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y"),)

    moves: JoinedMoves
    node: Node

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        """The type of the node's result."""
        count = len(self.moves.reads)
        known = dict(zip(self.others, types[count:], strict=True))
        known |= dict(zip(self.moves.writes, self.moves.infer(*types[:count]), strict=True))
        found = self.node.op.infer(*padded([known.get(name) for name in self.node.inputs], self.node.op.inputs))
        return found if isinstance(found, tuple) else (found,)

    @property
    def others(self) -> tuple[str, ...]:
        """The operands of the node that are not moved."""
        return tuple(dict.fromkeys(name for name in self.node.reads if name not in self.moves.writes))


def merge_operands(
    graph: Graph, kernel_of: Callable[[TypedNode], CLKernel | None], accepts: Callable[[TypedNode], bool]
) -> Graph:
    """The graph without moves whose results one elementwise node reads alone: it reads the values that they move.

    `kernel_of` gives the kernel of a node, `accepts` says whether a kernel runs a merged one.
    """
    changed: dict[str, Node | None] = {}
    for node in graph.nodes:
        for maker in {maker.name: maker for name in node.reads if (maker := graph.producers.get(name)) is not None}.values():
            if maker.name in changed or (moves := _moves(graph, maker, node, kernel_of)) is None:
                continue
            kernel = kernel_of(TypedNode.of(node, graph))
            if kernel is None or not kernel.elementwise:
                break
            op = MovedOperands(moves, node)
            new = dataclasses.replace(
                node, op=op, inputs=(*moves.reads, *op.others), post_ops=(), origins=represented_by(maker, node)
            )
            if accepts(TypedNode.of(new, graph)):
                changed |= {maker.name: None, node.name: new}
                break
    kept = [changed.get(node.name, node) for node in graph.nodes]
    return graph.replace(nodes=tuple(node for node in kept if node is not None)) if changed else graph


def _moves(graph: Graph, maker: Node, reader: Node, kernel_of: Callable[[TypedNode], CLKernel | None]) -> JoinedMoves | None:
    """The moves of a node that has no other reader; None where it does not only move, or is free in some layout."""
    if maker.post_ops or maker.op.is_view or any(name in graph.output_names for name in maker.writes):
        return None
    if any([one.name for one in graph.consumers.get(name, ())] != [reader.name] for name in maker.writes):
        return None
    if isinstance(maker.op, JoinedMoves):
        return maker.op
    typed = TypedNode.of(maker, graph)
    kernel = kernel_of(typed)
    if not isinstance(kernel, MoveKernel) or not kernel.only_moves or len(kernel.configurations(typed)) > 1:
        return None
    return JoinedMoves((maker,), (kernel.name,), maker.reads, maker.writes)
