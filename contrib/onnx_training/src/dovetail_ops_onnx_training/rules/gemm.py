"""Gemm, made of operators that have derivatives."""

from typing import Any

from dovetail_ops_onnx.mat_mul import MatMul


def compose(op: Any, inputs: Any) -> Any:
    """Y = alpha A B + beta C, A and B transposed or not."""
    a, b, c = (*inputs, None)[:3]
    a = a.transpose((1, 0)) if op.transA else a
    b = b.transpose((1, 0)) if op.transB else b
    y = a.apply(MatMul(), b)
    y = y if op.alpha == 1 else y * op.alpha
    return y if c is None else y + (c if op.beta == 1 else c * op.beta)
