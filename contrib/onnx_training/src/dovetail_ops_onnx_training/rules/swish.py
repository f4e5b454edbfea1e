"""Swish, made of operators that have derivatives."""

from typing import Any

from dovetail_ops_onnx.sigmoid import Sigmoid


def compose(op: Any, inputs: Any) -> Any:
    """Y = X sigmoid(alpha X)."""
    (x,) = inputs
    return x * (x * op.alpha).apply(Sigmoid())
