"""Gemm: C and the factors alpha and beta are the first post-ops."""

from dovetail.device import Eltwise, PostOp, Refusal, Sum, TensorType, TypedNode
from dovetail_gpu_opencl.kernels._gemm import Matrix, Product
from dovetail_gpu_opencl.kernels._products import products
from dovetail_ops_onnx.gemm import Gemm

__all__ = ["KERNELS", "product_of"]


def product_of(node: TypedNode) -> Product | Refusal:
    """The product of a Gemm."""
    op = node.op
    assert isinstance(op, Gemm)
    a, b, c = node.given(0), node.given(1), node.inputs[2] if len(node.inputs) > 2 else None
    m, n, k = op.sizes(a, b)
    left = Matrix(node.node.inputs[0], a, *((1, m) if op.transA else (k, 1)))
    right = Matrix(node.node.inputs[1], b, *((1, k) if op.transB else (n, 1)))
    chain: list[PostOp] = []
    operands: list[TensorType] = []
    if op.alpha != 1:
        chain.append(Eltwise("linear", op.alpha, 0.0))
    if c is not None and op.beta:
        chain.append(Sum(node.node.inputs[2], op.beta))
        operands.append(c)
    return Product(m, n, k, 1, left, right, tuple(chain), tuple(operands))


KERNELS = products(product_of)
