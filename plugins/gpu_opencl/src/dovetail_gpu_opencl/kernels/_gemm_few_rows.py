"""Matrix products of a few rows and constant weights, as models have them token by token, for GPUs."""

import numpy as np
from numpy.typing import NDArray

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import ceil_div, group_size
from dovetail_gpu_opencl.kernels._gemm import GemmKernel, Product
from dovetail_gpu_opencl.launch import Constant, Launch, Read, Write, ints
from dovetail_gpu_opencl.precision import holds
from dovetail_gpu_opencl.source import assemble, storage

__all__ = ["GemmFewRows"]

_ROWS = 4
"""Rows up to which matrix units gain nothing: reading the weights takes longer."""
_AT_ONCE = 8
"""Elements that an item reads at once."""
_GROUP = 128


class GemmFewRows(GemmKernel):
    """gemm_few_rows.cl. Factors and results may be of float16 or float32, whatever the others are; sums are of float32."""

    name = "gemm_few_rows"
    dtypes = frozenset({DType.FLOAT32, DType.FLOAT16})
    half_by_load = True
    mixes = True

    def fits(self, product: Product) -> Refusal | None:
        if self.caps.kind != "GPU":
            return Refusal(Reason.CAPABILITY, "made for GPUs")
        if product.m > _ROWS or product.batch != 1:
            return Refusal(Reason.SHAPE, f"{product.batch} products of {product.m} rows; accepted: one of up to {_ROWS}")
        value, a = product.b.type.value, product.a
        if product.bias or value is None or value.size != product.k * product.n:
            return Refusal(Reason.ATTRIBUTE, "a bias for each row, or a second factor that is not constant")
        if not product.k or a.column != 1 or product.k % _AT_ONCE or a.row % _AT_ONCE:
            return Refusal(Reason.LAYOUT, f"rows of {product.k} elements; accepted: dense ones of multiples of {_AT_ONCE}")
        return None

    def launches_of(self, product: Product, node: TypedNode) -> tuple[Launch, ...]:
        weights, chain = self._weights(product), post_ops.epilogue(node)
        group = group_size(self.caps, _GROUP)
        # Enough items a column for a few reads each.
        lanes = min(group, 32 if product.k < 1024 else 64 if product.k < 4096 else 128)
        defines = {
            **storage(node.outputs[0].dtype),
            **storage(product.a.type.dtype, "A"),
            **storage(DType.of(weights.dtype), "W"),
            "ROWS": product.m,
            "LANES": lanes,
            "GROUP": group,
        }
        arguments = (Read(product.a.name), Constant(weights), Write(node.node.outputs[0]))
        sizes = ints(product.n, product.k, product.a.row)
        source, work = assemble("gemm_few_rows.cl", defines, chain.source), (ceil_div(product.n * lanes, group) * group,)
        return (Launch("gemm_few_rows.cl", source, self.name, (*arguments, *sizes, *chain.arguments), work, (group,)),)

    def _weights(self, product: Product) -> NDArray[np.generic]:
        """[n, k]: in float16 where the rows are and it holds them."""
        value, dense = product.b.type.value, product.b.dense(product.k, product.n)
        assert value is not None
        assert dense is not None
        half = product.a.type.dtype is DType.FLOAT16 and holds(DType.FLOAT16, value)
        dtype = np.float16 if half else value.dtype
        order = (self.name, str(dtype), product.k, product.n, product.b.row, product.b.column)
        return self.packed.get(value, order, lambda: np.ascontiguousarray(dense[0].T, dtype))
