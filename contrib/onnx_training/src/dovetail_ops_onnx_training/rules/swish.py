"""Swish, made of operators that have derivatives."""

from typing import Any

from dovetail.ops.sigmoid import Sigmoid


def compose(op: Any, inputs: Any) -> Any:
    """Y = X sigmoid(alpha X)."""
    (x,) = inputs
    return x * (x * op.alpha).apply(Sigmoid())
