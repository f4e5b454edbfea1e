"""Elu, made of operators that have derivatives."""

from typing import Any

from dovetail_ops_onnx.exp import Exp
from dovetail_ops_onnx.greater import Greater
from dovetail_ops_onnx.min import Min
from dovetail_ops_onnx_training.values import select


def compose(op: Any, inputs: Any) -> Any:
    """Y = X where X > 0, else alpha (exp(X) - 1)."""
    (x,) = inputs
    below = x.apply(Min(), 0).apply(Exp()) - 1  # the branch that is not taken must not overflow
    return select(x.apply(Greater(), 0), x, below * op.alpha)
