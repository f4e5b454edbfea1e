"""PRelu, made of operators that have derivatives."""

from typing import Any

from dovetail_ops_onnx.greater import Greater
from dovetail_ops_onnx_training.values import select


def compose(op: Any, inputs: Any) -> Any:
    """Y = X where X > 0, else slope X."""
    x, slope = inputs
    return select(x.apply(Greater(), 0), x, slope * x)
