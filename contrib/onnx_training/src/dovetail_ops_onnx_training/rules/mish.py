"""Mish, made of operators that have derivatives."""

from typing import Any

from dovetail_ops_onnx.softplus import Softplus
from dovetail_ops_onnx.tanh import Tanh


def compose(op: Any, inputs: Any) -> Any:
    """Y = X tanh(softplus(X))."""
    (x,) = inputs
    return x * x.apply(Softplus()).apply(Tanh())
