"""Products whose rows are normalized: the operator, the pass that makes it, and its kernel, which saves a launch."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.device import DType, Eltwise, Graph, Node, PostOp, Reason, Refusal, TensorType, TypedNode
from dovetail.op import AbstractOperator, Port
from dovetail.passes import represented_by
from dovetail_gpu_opencl.kernel import ceil_div
from dovetail_gpu_opencl.kernels._gemm import Product
from dovetail_gpu_opencl.kernels._gemm_pipelined import GemmPipelined
from dovetail_gpu_opencl.kernels._merging import Makers, merge
from dovetail_gpu_opencl.kernels._pipelined import HALVES, Normalization, Pipeline
from dovetail_gpu_opencl.kernels._tuned import Problem
from dovetail_gpu_opencl.launch import Argument, Launch, Scratch, Write
from dovetail_ops_onnx.layer_normalization import LayerNormalization
from dovetail_ops_onnx.mat_mul import MatMul

__all__ = ["NormalizedPipelined", "NormalizedProduct", "merge_normalizations"]

MOST = 2048
"""Elements of a row: 64 in the registers of an item."""
MOST_ROWS = 512
"""With more, a group takes longer for its rows than all groups of another launch do; with fewer, launches take the longest."""
_LAUNCH = 6000.0
"""Cycles of an NVIDIA H200 for the launch that normalizes rows after a product."""
_VECTORS = 8
"""MOST_VECTORS of tiles_pipelined.cl."""
_TURN = 1500
"""Cycles of an NVIDIA H200 for so many vectors. With these the model chooses three of the four tilings that are the fastest
of 24 for MiniLM's products of 128 rows; without them it chooses ones that take up to 43 % longer."""


@dataclass(frozen=True, eq=False)
class NormalizedProduct(AbstractOperator):
    """LayerNormalization, over the last axis, of a product after a chain of post-ops, which has the type of A in between.

    `dtype` is the type of the result. The second output, where it is not left out, is that product, for others that read it.
    Inputs are the factors A and B, Scale and B of the normalization, and the operands of `chain` in their order.
    """

    domain: ClassVar[str] = "dovetail.opencl"
    op_type: ClassVar[str] = "NormalizedProduct"
    stem: ClassVar[str] = "normalized_product"
    inputs: ClassVar[tuple[Port, ...]] = (Port("A"), Port("B"), Port("Scale"), Port("Shift"), Port("operands", variadic=True))
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y"), Port("Product", optional=True))

    product: MatMul
    chain: tuple[PostOp, ...]
    epsilon: float
    dtype: DType

    def infer(
        self, A: TensorType, B: TensorType, Scale: TensorType, Shift: TensorType | None, *operands: TensorType
    ) -> tuple[TensorType, ...]:
        product = self.product.infer(A, B)
        return product.with_dtype(self.dtype), product

    def multiplied(self, node: TypedNode) -> TypedNode:
        """The product with its chain alone."""
        names = node.node.inputs
        operands = iter(names[4:])
        chain = tuple(p if isinstance(p, Eltwise) else dataclasses.replace(p, operand=next(operands)) for p in self.chain)
        inner = Node(node.name, self.product, names[:2], node.node.outputs[-1:], post_ops=chain)
        types = tuple(t for t in node.inputs[4:] if t is not None)
        return TypedNode(inner, node.inputs[:2], (node.outputs[0].with_dtype(node.given(0).dtype),), types)

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return self.product.flops(tuple(inputs[:2]), outputs) + 8 * outputs[0].size


def merge_normalizations(graph: Graph, accepts: Callable[[TypedNode], bool]) -> Graph:
    """The graph with one node in place of each product and the first node that reads it, a LayerNormalization.

    `accepts` says whether a kernel runs the new node.
    """
    places = {node.name: place for place, node in enumerate(graph.nodes)}

    def find(makers: Makers, node: Node) -> tuple[Sequence[Node], Node] | None:
        maker = makers.get(node.inputs[0]) if isinstance(node.op, LayerNormalization) else None
        if maker is None or not _normalizes(graph, maker, node):
            return None
        result = maker.writes[0]
        readers = graph.consumers[result]
        if any(places[reader.name] < places[node.name] for reader in readers):
            return None
        return [maker], _merged(maker, node, result in graph.outputs or len(readers) > 1, graph.types[node.writes[0]].dtype)

    return merge(graph, find, accepts)


def _normalizes(graph: Graph, maker: Node, node: Node) -> bool:
    """Whether the node is a plain normalization of the last axis of a product, with one output."""
    result = maker.writes[0]
    assert isinstance(node.op, LayerNormalization)
    if not isinstance(maker.op, MatMul) or graph.types[result].dtype is not graph.types[maker.inputs[0]].dtype or node.post_ops:
        return False
    last = node.op.axis in (-1, graph.types[result].rank - 1)
    return last and len(node.writes) == 1


def _merged(maker: Node, node: Node, is_read: bool, dtype: DType) -> Node:
    """The node in place of both, whose result has this type; `is_read` says whether others read the product."""
    assert isinstance(node.op, LayerNormalization)
    assert isinstance(maker.op, MatMul)
    op = NormalizedProduct(maker.op, maker.post_ops, node.op.epsilon, dtype)
    shift = node.inputs[2] if len(node.inputs) > 2 else ""
    inputs = (*maker.inputs, node.inputs[1], shift, *maker.operands)
    return dataclasses.replace(
        node, op=op, inputs=inputs, outputs=(*node.writes, *maker.writes[:is_read]), origins=represented_by(maker, node)
    )


class NormalizedPipelined(GemmPipelined):
    """For GPUs with matrix units: tiles_pipelined.cl with NORMALIZE."""

    name = "gemm_normalized"
    has_epilogue = False
    spared = _LAUNCH

    def check(self, node: TypedNode) -> Refusal | None:
        inner = _operator(node).multiplied(node)
        size = inner.outputs[0].dims[-1]
        if inner.outputs[0].size > size * MOST_ROWS and not self.packed.keeps(self.name, node):
            return Refusal(Reason.SHAPE, f"{inner.outputs[0].size // size} rows; accepted: up to {MOST_ROWS}")
        if not 0 < size <= MOST or size % 8:
            return Refusal(Reason.SHAPE, f"rows of {size} elements; accepted: up to {MOST}, multiples of 8")
        parameters = [t for t in node.inputs[2:4] if t is not None]
        if any(t.size != size for t in parameters):
            return Refusal(Reason.SHAPE, f"Scale and B are {', '.join(map(str, parameters))}; accepted: {size} elements")
        dtypes = {t.dtype for t in parameters}
        if node.outputs[0].dtype not in HALVES or not dtypes <= HALVES or len(dtypes) > 1:
            accepted = ", ".join(sorted(map(str, HALVES)))
            return Refusal(Reason.DTYPE, f"Scale and B {', '.join(map(str, parameters))}; accepted: one of {accepted}")
        refusal = super().check(inner)
        if refusal is None and self.product(inner).batch != 1:
            return Refusal(Reason.ATTRIBUTE, "several second factors")
        return refusal

    def problem(self, node: TypedNode) -> Problem | None:
        return super().problem(_operator(node).multiplied(node))

    def problem_of(self, product: Product) -> Problem:
        problem = super().problem_of(product)
        return dataclasses.replace(problem, key=f"{problem.key} normalized")

    def cost(self, problem: Problem, parameters: Pipeline) -> float:
        """Cycles, with those of the groups that normalize: each of their sub-groups waits for a few rows at a time."""
        rows = ceil_div(parameters.tile_m, parameters.sub_groups)
        return super().cost(problem, parameters) + _TURN * ceil_div(rows * ceil_div(problem.n, 256), _VECTORS)

    def default(self, problem: Problem) -> Pipeline:
        return min(self.possible(problem), key=lambda tiling: self.cost(problem, tiling))

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        op = _operator(node)
        inner = op.multiplied(node)
        product = self.product(inner)
        if 0 in (product.m, product.n):
            return ()
        names, written = node.node.inputs, node.node.outputs
        between: Argument = Scratch(f"scratch:{node.name}:0", inner.outputs[0].nbytes)
        if len(written) > 1:
            between = Write(written[1])
        normalization = Normalization(names[2], node.given(2), names[3], op.epsilon, written[0], node.outputs[0])
        return self.multiplied(product, product.attach(inner), between, normalization)


def _operator(node: TypedNode) -> NormalizedProduct:
    op = node.op
    assert isinstance(op, NormalizedProduct)
    return op
