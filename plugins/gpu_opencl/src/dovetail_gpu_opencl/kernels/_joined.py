"""Products of one A by several matrices of packed weights, in one launch: those of a row are so short that launches count."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.device import Binary, Eltwise, Graph, Node, TypedNode
from dovetail.op import AbstractOperator, Port
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_ops_onnx.mat_mul_blocks import MatMulBlocks

__all__ = ["JoinedProducts", "ShortProduct", "parts_of"]

MOST = 3
"""Matrices: queries, keys and values."""


@dataclass(frozen=True, eq=False)
class JoinedProducts(AbstractOperator):
    """Several MatMulBlocks of one A. Inputs are A, then q, scales and perhaps offsets of each matrix.

    There is an output for each; with `gate`, a chain for the first of two products, there is one: gate(first) * second.
    """

    domain: ClassVar[str] = "dovetail.opencl"
    op_type: ClassVar[str] = "JoinedProducts"
    stem: ClassVar[str] = "joined_products"
    inputs: ClassVar[tuple[Port, ...]] = (Port("A"), Port("matrices", variadic=True))
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y", variadic=True),)

    product: MatMulBlocks
    count: int
    gate: tuple[Eltwise, ...] | None = None

    def parts(self, node: TypedNode) -> list[TypedNode]:
        """The products; with `gate` both have the node's output."""
        each, found = (len(node.inputs) - 1) // self.count, []
        for index in range(self.count):
            places = (0, *range(1 + index * each, 1 + (index + 1) * each))
            output = 0 if self.gate is not None else index
            names = tuple(node.node.inputs[i] for i in places)
            part = Node(node.name, self.product, names, (node.node.outputs[output],))
            found.append(TypedNode(part, tuple(node.inputs[i] for i in places), (node.outputs[output],)))
        return found


def parts_of(node: TypedNode) -> list[TypedNode]:
    """The products of a JoinedProducts, or the node itself."""
    return node.op.parts(node) if isinstance(node.op, JoinedProducts) else [node]


class ShortProduct(CLKernel):
    """The base of kernels that run a MatMulBlocks, and several of one A as a JoinedProducts."""

    joins_nodes = True

    def join_key(self, node: TypedNode) -> tuple[object, ...] | None:
        if not isinstance(node.op, MatMulBlocks):
            return None
        return node.node.inputs[0], node.op.bits, node.op.block_size, node.given(1).dtype, len(node.inputs)

    def joined(self, graph: Graph, nodes: Sequence[Node]) -> Mapping[str, Node | None]:
        changed = _gated(graph, nodes)
        plain = [node for node in nodes if not node.post_ops and node.name not in changed]
        for start in range(0, len(plain), MOST):
            changed |= _side_by_side(plain[start : start + MOST])
        return changed


def _gated(graph: Graph, nodes: Sequence[Node]) -> dict[str, Node | None]:
    """The nodes that replace products multiplied by another one, which nothing else reads."""
    found: dict[str, Node | None] = {}
    by_output = {node.outputs[0]: node for node in nodes}
    for node in nodes:
        factor = node.post_ops[0] if len(node.post_ops) == 1 else None
        if not isinstance(factor, Binary) or factor.algorithm != "mul" or factor.operand not in by_output:
            continue
        gate, alone = by_output[factor.operand], factor.operand not in graph.output_names
        chain = tuple(p for p in gate.post_ops if isinstance(p, Eltwise))
        same = graph.types[gate.outputs[0]] == graph.types[node.outputs[0]]
        if alone and same and chain == gate.post_ops and graph.consumers[factor.operand] == (node,):
            found[gate.name], found[node.name] = None, _joined([gate, node], node, chain)
    return found


def _side_by_side(nodes: Sequence[Node]) -> dict[str, Node | None]:
    if len(nodes) < 2:
        return {}
    return {**dict.fromkeys((node.name for node in nodes[1:]), None), nodes[0].name: _joined(nodes, nodes[0], None)}


def _joined(nodes: Sequence[Node], place: Node, gate: tuple[Eltwise, ...] | None) -> Node:
    assert isinstance(place.op, MatMulBlocks)
    matrices = tuple(name for node in nodes for name in node.inputs[1:])
    outputs = place.outputs if gate is not None else tuple(node.outputs[0] for node in nodes)
    origins = tuple(dict.fromkeys(name for node in nodes for name in (node.name, *node.origins)))
    op = JoinedProducts(place.op, len(nodes), gate)
    return dataclasses.replace(place, op=op, inputs=(place.inputs[0], *matrices), outputs=outputs, post_ops=(), origins=origins)
