"""Shrink, made of operators that have derivatives."""

from typing import Any

from dovetail_ops_onnx.greater import Greater
from dovetail_ops_onnx.less import Less
from dovetail_ops_onnx_training.values import select


def compose(op: Any, inputs: Any) -> Any:
    """Y = X + bias below -lambd, X - bias above lambd, else 0."""
    (x,) = inputs
    above = select(x.apply(Greater(), op.lambd), x - op.bias, 0)
    return select(x.apply(Less(), -op.lambd), x + op.bias, above)
