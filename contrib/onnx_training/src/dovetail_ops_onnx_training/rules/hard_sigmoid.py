"""HardSigmoid, made of operators that have derivatives."""

from typing import Any

from dovetail_ops_onnx.clip import Clip


def compose(op: Any, inputs: Any) -> Any:
    """Y = alpha X + beta, limited to 0 and 1."""
    (x,) = inputs
    line = x * op.alpha + op.beta
    return line.apply(Clip(), 0, 1)
