"""Mish, made of operators that have derivatives."""

from typing import Any

from dovetail.ops.softplus import Softplus
from dovetail.ops.tanh import Tanh


def compose(op: Any, inputs: Any) -> Any:
    """Y = X tanh(softplus(X))."""
    (x,) = inputs
    return x * x.apply(Softplus()).apply(Tanh())
