"""Matrix products of a few rows and constant weights, as models have them token by token, for GPUs."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import Binary, DType, Graph, Node, PostOp, Reason, Refusal, Sum, TensorType, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import ceil_div, group_size
from dovetail_gpu_opencl.kernels._gemm import GemmKernel, Product
from dovetail_gpu_opencl.launch import Constant, Launch, Read, Write, ints
from dovetail_gpu_opencl.precision import holds
from dovetail_gpu_opencl.source import assemble, storage

__all__ = ["GemmFewRows"]

_ROWS = 4
"""Rows up to which matrix units gain nothing: reading the weights takes longer."""
_HURRIED_ROWS = 64
"""Those up to which a hurried plan reads the weights again for each few of them: a program takes longer to build."""
_AT_ONCE = 8
"""Elements that an item reads at once."""
_GROUP = 128
_JOINED = ("mat_mul", "gemm")
"""The stems of the operators of which several are one launch."""


class GemmFewRows(GemmKernel):
    """gemm_few_rows.cl. Factors and results may be of float16 or float32, whatever the others are; sums are of float32."""

    name = "gemm_few_rows"
    dtypes = frozenset({DType.FLOAT32, DType.FLOAT16})
    half_by_load = True
    mixes = True
    joins_nodes = True

    def fits(self, product: Product) -> Refusal | None:
        if self.caps.kind != "GPU":
            return Refusal(Reason.CAPABILITY, "made for GPUs")
        most = _HURRIED_ROWS if self.packed.hurried else _ROWS
        if product.m > most or product.batch != 1:
            return Refusal(Reason.SHAPE, f"{product.batch} products of {product.m} rows; accepted: one of up to {most}")
        value, a = product.b.type.value, product.a
        if product.bias or value is None or value.size != product.k * product.n:
            return Refusal(Reason.ATTRIBUTE, "a bias for each row, or a second factor that is not constant")
        if not product.k or a.column != 1 or product.k % _AT_ONCE or a.row % _AT_ONCE:
            return Refusal(Reason.LAYOUT, f"rows of {product.k} elements; accepted: dense ones of multiples of {_AT_ONCE}")
        return None

    def join_key(self, node: TypedNode) -> tuple[object, ...] | None:
        product, has_c = self.product(node), len(node.inputs) > 2
        if node.op.stem not in _JOINED or len(product.chain) != has_c:
            return None
        biased = _bias(product.attach(node)) is not None
        return (product.a.name, str(node.op), node.outputs[0].dtype, biased) if biased or not has_c else None

    def joined(self, graph: Graph, nodes: Sequence[Node]) -> Mapping[str, Node | None]:
        from dovetail_gpu_opencl.kernels._joined import join

        return join(graph, [_with_bias(node, graph) for node in nodes], self.dtypes)

    def launches_of(self, product: Product, node: TypedNode) -> tuple[Launch, ...]:
        weights, chain = self.weights(product, product.a.type.dtype), post_ops.epilogue(node)
        defines, work, group = self.sizes(product, node, weights.dtype, product.n)
        arguments = (Read(product.a.name), Constant(weights), Write(node.node.outputs[0]))
        sizes = ints(product.m, product.n, product.k, product.a.row)
        source = assemble("gemm_few_rows.cl", defines, chain.source)
        return (Launch("gemm_few_rows.cl", source, self.name, (*arguments, *sizes, *chain.arguments), work, group),)

    def weights(self, product: Product, rows: DType) -> NDArray[np.generic]:
        """[n, k]: in float16 where that is the type of the rows and it holds them."""
        value, dense = product.b.type.value, product.b.dense(product.k, product.n)
        assert value is not None
        assert dense is not None
        half = rows is DType.FLOAT16 and holds(DType.FLOAT16, value)
        dtype = np.float16 if half else value.dtype
        order = (self.name, str(dtype), product.k, product.n, product.b.row, product.b.column)
        return self.packed.get(value, order, lambda: np.ascontiguousarray(dense[0].T, dtype))

    def sizes(
        self, product: Product, node: TypedNode, weights: np.dtype[Any], columns: int
    ) -> tuple[dict[str, object], tuple[int, int], tuple[int, int]]:
        """The defines of gemm_few_rows.cl for so many columns, the global and the local size."""
        group = group_size(self.caps, _GROUP)
        # Enough items a column for a few reads each.
        lanes = min(group, 32 if product.k < 1024 else 64 if product.k < 4096 else 128)
        rows = self.packed.settled(self.name, node, min(product.m, _ROWS))
        defines = {
            **storage(node.outputs[0].dtype),
            **storage(product.a.type.dtype, "A"),
            **storage(DType.of(weights), "W"),
            "ROWS": rows,
            "LANES": lanes,
            "GROUP": group,
        }
        return defines, (ceil_div(columns * lanes, group) * group, ceil_div(product.m, rows)), (group, 1)


def _bias(node: TypedNode) -> str | None:
    """The constant that is added to each row of a product first."""
    (first, *_), (operand, *_) = node.post_ops or (None,), node.operands or (None,)
    return _added(first) if operand is not None and _is_bias(operand, node.outputs[0]) else None


def _with_bias(node: Node, graph: Graph) -> Node:
    """The node with its bias as an input in place of a post-op."""
    name = None if len(node.inputs) > 2 else _bias(TypedNode.of(node, graph))
    return node if name is None else dataclasses.replace(node, inputs=(*node.inputs, name), post_ops=node.post_ops[1:])


def _added(post_op: PostOp | None) -> str | None:
    if isinstance(post_op, Binary):
        return post_op.operand if post_op.algorithm == "add" else None
    return post_op.operand if isinstance(post_op, Sum) and (post_op.scale, post_op.zero_point) == (1, 0) else None


def _is_bias(operand: TensorType, result: TensorType) -> bool:
    return operand.value is not None and operand.size == result.dims[-1] and operand.dims[-1:] == result.dims[-1:]
