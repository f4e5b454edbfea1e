"""MatMul: batches broadcast; vectors are matrices of one row or column."""

import math

from dovetail.device import Refusal, TensorType, TypedNode
from dovetail_gpu_opencl.broadcast import flat_index, strides_of
from dovetail_gpu_opencl.kernels._gemm import Matrix, Product
from dovetail_gpu_opencl.kernels._products import products

__all__ = ["KERNELS", "product_of"]


def product_of(node: TypedNode, second: int = 1) -> Product | Refusal:
    """The product of the node's first input and the one with index `second`."""
    a, b = node.given(0), node.given(second)
    a_dims = (1, *a.dims) if a.rank == 1 else a.dims
    b_dims = (*b.dims, 1) if b.rank == 1 else b.dims
    m, k, n = a_dims[-2], a_dims[-1], b_dims[-1]
    rank = max(len(a_dims), len(b_dims)) - 2
    a_batch, b_batch = _padded(a_dims[:-2], rank), _padded(b_dims[:-2], rank)
    batch = tuple(y if x == 1 else x for x, y in zip(a_batch, b_batch, strict=True))
    if math.prod(b_batch) == 1 and a_batch == batch:
        # One second factor for all: the first ones are the rows of one tall matrix.
        m, batch, a_batch, b_batch = m * math.prod(batch), (), (), ()
    left = _matrix(node.node.inputs[0], a, (m, k), batch, a_batch)
    right = _matrix(node.node.inputs[second], b, (k, n), batch, b_batch)
    return Product(m, n, k, math.prod(batch), left, right)


def _padded(dims: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(dims)) + dims


def _matrix(name: str, given: TensorType, size: tuple[int, int], batch: tuple[int, ...], own: tuple[int, ...]) -> Matrix:
    """A factor of dense matrices whose batch axes `own` broadcast to `batch`."""
    elements = size[0] * size[1]
    if own == batch:
        return Matrix(name, given, size[1], 1, elements)
    strides = [0 if d == 1 else s * elements for d, s in zip(own, strides_of(own), strict=True)]
    return Matrix(name, given, size[1], 1, batch=flat_index(batch, strides, "(z)"))


KERNELS = products(product_of)
