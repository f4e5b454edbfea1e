"""Products of one A by several matrices, in one launch: those of few rows are so short that launches count."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.device import Binary, DType, Eltwise, Graph, Node, Reason, Refusal, TensorType, TypedNode, padded
from dovetail.op import AbstractOperator, Port
from dovetail.passes import represented_by
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.kernels._packed_blocks import Product
from dovetail_ops_onnx.mat_mul_rows import MatMulRows
from dovetail_ops_onnx.rms_normalization import RMSNormalization

__all__ = ["JoinedProducts", "ShortProduct", "join", "normalization", "parts_of"]

MOST = 3
"""Matrices: queries, keys and values."""


@dataclass(frozen=True, eq=False)
class JoinedProducts(AbstractOperator):
    """One product, or several of one operator and one A. Inputs are A, then what each takes besides A, for MatMul a bias, too.

    There is an output for each; with `gate`, a chain for the first of two products, there is one: gate(first) * second. With
    `epsilon` the rows of A are first normalized as by RMSNormalization, whose scale [K] is the last input.
    """

    domain: ClassVar[str] = "dovetail.opencl"
    op_type: ClassVar[str] = "JoinedProducts"
    stem: ClassVar[str] = "joined_products"
    inputs: ClassVar[tuple[Port, ...]] = (Port("A"), Port("matrices", variadic=True))
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y", variadic=True),)

    product: AbstractOperator
    count: int
    gate: tuple[Eltwise, ...] | None = None
    epsilon: float | None = None

    def infer(self, A: TensorType, *matrices: TensorType | None) -> tuple[TensorType, ...]:
        each, ports = (len(matrices) - (self.epsilon is not None)) // self.count, len(self.product.inputs)
        one_by_one = (matrices[i * each : (i + 1) * each] for i in range(1 if self.gate is not None else self.count))
        return tuple(self.product.infer(*padded((A, *own)[:ports], self.product.inputs)) for own in one_by_one)

    def parts(self, node: TypedNode) -> list[TypedNode]:
        """The products; with `gate` both have the node's output."""
        each, found = (len(node.inputs) - 1 - (self.epsilon is not None)) // self.count, []
        for index in range(self.count):
            places = (0, *range(1 + index * each, 1 + (index + 1) * each))
            output = 0 if self.gate is not None else index
            names = tuple(node.node.inputs[i] for i in places)
            part = Node(node.name, self.product, names, (node.node.outputs[output],))
            found.append(TypedNode(part, tuple(node.inputs[i] for i in places), (node.outputs[output],)))
        return found


def normalization(node: TypedNode) -> tuple[str, float] | None:
    """The name of the scale and the epsilon by which the rows of A are normalized."""
    epsilon = node.op.epsilon if isinstance(node.op, JoinedProducts) else None
    return None if epsilon is None else (node.node.inputs[-1], epsilon)


def parts_of(node: TypedNode) -> list[TypedNode]:
    """The products of a JoinedProducts, or the node itself."""
    return node.op.parts(node) if isinstance(node.op, JoinedProducts) else [node]


class ShortProduct(CLKernel):
    """The base of kernels that run a MatMulBlocks, and several of one A as a JoinedProducts, and the same of MatMulRows."""

    joins_nodes = True
    normalizes: ClassVar[frozenset[DType]] = frozenset()
    """The types in which the kernel also normalizes A. On CPUs, where each work item would, that takes longer than a launch."""

    def applies(self, node: TypedNode) -> Refusal | None:
        others = isinstance(node.op, JoinedProducts) and not isinstance(node.op.product, Product)
        return Refusal(Reason.OPERATOR, "products by matrices that are not packed") if others else None

    def join_key(self, node: TypedNode) -> tuple[object, ...] | None:
        if isinstance(node.op, MatMulRows):
            return node.node.inputs[0], node.op.format.name
        if not isinstance(node.op, Product):
            return None
        return node.node.inputs[0], node.op.bits, node.op.block_size, node.given(1).dtype, len(node.inputs)

    def joined(self, graph: Graph, nodes: Sequence[Node]) -> Mapping[str, Node | None]:
        return join(graph, nodes, self.normalizes)


def join(graph: Graph, nodes: Sequence[Node], normalized: frozenset[DType]) -> Mapping[str, Node | None]:
    """By name, what takes the place of these products of one A; see `CLKernel.joined`. Inputs may differ from the graph's nodes.

    Also of an RMSNormalization before them, of values and scales of the types `normalized`.
    """
    changed = _gated(graph, nodes)
    plain = [node for node in nodes if not node.post_ops and node.name not in changed]
    for start in range(0, len(plain), MOST):
        changed |= _side_by_side(plain[start : start + MOST])
    return _normalizing(graph, nodes, changed, normalized)


def _gated(graph: Graph, nodes: Sequence[Node]) -> dict[str, Node | None]:
    """The nodes that replace products multiplied by another one, which nothing else reads. One of the two may have a chain."""
    found: dict[str, Node | None] = {}
    by_output = {node.outputs[0]: node for node in nodes}
    for node in nodes:
        factor = node.post_ops[-1] if node.post_ops else None
        if not isinstance(factor, Binary) or factor.algorithm != "mul" or factor.operand not in by_output:
            continue
        other, alone = by_output[factor.operand], factor.operand not in graph.output_names
        same = graph.types[other.outputs[0]] == graph.types[node.outputs[0]]
        own = tuple(p for p in node.post_ops[:-1] if isinstance(p, Eltwise))
        chain = tuple(p for p in other.post_ops if isinstance(p, Eltwise))
        if (own and chain) or len(own) + 1 != len(node.post_ops) or len(chain) != len(other.post_ops):
            continue
        if alone and same and [reader.name for reader in graph.consumers[factor.operand]] == [node.name]:
            found[other.name] = None
            found[node.name] = _joined([node, other] if own else [other, node], node, own or chain)
    return found


def _side_by_side(nodes: Sequence[Node]) -> dict[str, Node | None]:
    if len(nodes) < 2:
        return {}
    return {**dict.fromkeys((node.name for node in nodes[1:]), None), nodes[0].name: _joined(nodes, nodes[0], None)}


def _joined(nodes: Sequence[Node], place: Node, gate: tuple[Eltwise, ...] | None) -> Node:
    matrices = tuple(name for node in nodes for name in node.inputs[1:])
    outputs = place.outputs if gate is not None else tuple(node.outputs[0] for node in nodes)
    op = JoinedProducts(_product(place), len(nodes), gate)
    return dataclasses.replace(
        place, op=op, inputs=(place.inputs[0], *matrices), outputs=outputs, post_ops=(), origins=represented_by(*nodes)
    )


def _normalizing(
    graph: Graph, nodes: Sequence[Node], changed: Mapping[str, Node | None], dtypes: frozenset[DType]
) -> Mapping[str, Node | None]:
    """The changes, with an RMSNormalization before the products as a part of them, where one node takes the place of all."""
    left = [node for one in nodes if (node := changed.get(one.name, one)) is not None]
    norm = graph.producers.get(nodes[0].inputs[0])
    if norm is None or len(left) > 1 or not _is_of_rows(graph, norm, dtypes) or norm.outputs[0] in graph.output_names:
        return changed
    if {node.name for node in graph.consumers[norm.outputs[0]]} != {node.name for node in nodes}:
        return changed
    (node,) = left
    joined = node.op if isinstance(node.op, JoinedProducts) else JoinedProducts(_product(node), 1)
    assert isinstance(norm.op, RMSNormalization)
    op = dataclasses.replace(joined, epsilon=norm.op.epsilon)
    inputs = norm.inputs[0], *node.inputs[1:], norm.inputs[1]
    return {
        **changed,
        norm.name: None,
        node.name: dataclasses.replace(node, op=op, inputs=inputs, origins=represented_by(norm, node)),
    }


def _product(node: Node) -> AbstractOperator:
    assert isinstance(node.op, AbstractOperator)
    return node.op


def _is_of_rows(graph: Graph, norm: Node, dtypes: frozenset[DType]) -> bool:
    """Whether it is an RMSNormalization of the last axis alone, of such types, with a scale for each element of it."""
    if not isinstance(norm.op, RMSNormalization) or norm.post_ops:
        return False
    x, scale = (graph.types[name] for name in norm.inputs)
    in_rows = norm.op.axis in (-1, x.rank - 1) and scale.dims == x.dims[-1:]
    return in_rows and x.dtype in dtypes and scale.dtype in dtypes
