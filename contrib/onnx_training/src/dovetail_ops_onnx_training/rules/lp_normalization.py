"""LpNormalization, made of operators that have derivatives."""

from typing import Any

from dovetail_ops_onnx.abs import Abs
from dovetail_ops_onnx.sqrt import Sqrt


def compose(op: Any, inputs: Any) -> Any:
    """Y = X / norm of X along `axis`."""
    (x,) = inputs
    total = x.apply(Abs()).sum([op.axis]) if op.p == 1 else (x * x).sum([op.axis]).apply(Sqrt())
    return x / total
