"""Gelu, made of operators that have derivatives."""

import math
from typing import Any

from dovetail_ops_onnx.erf import Erf
from dovetail_ops_onnx.tanh import Tanh


def compose(op: Any, inputs: Any) -> Any:
    """Y = X Phi(X), or its approximation by tanh."""
    (x,) = inputs
    if op.approximate == "tanh":
        inner = ((x * x * x) * 0.044715 + x) * math.sqrt(2 / math.pi)
        return x * 0.5 * (inner.apply(Tanh()) + 1)
    return x * 0.5 * ((x * math.sqrt(0.5)).apply(Erf()) + 1)
