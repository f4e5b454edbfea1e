"""The derivative of ThresholdedRelu."""

from typing import Any

from dovetail_ops_onnx.greater import Greater
from dovetail_ops_onnx_training.values import select


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY where X > alpha, else 0."""
    x, dy = inputs[0], gradients[0]
    return select(x.apply(Greater(), op.alpha), dy, 0)
