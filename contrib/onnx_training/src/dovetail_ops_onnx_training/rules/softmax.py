"""The derivative of Softmax."""

from typing import Any

from dovetail_ops_onnx_training.rules._axes import softmax_axes


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = Y (dY - sum(dY Y))."""
    y, dy = outputs[0], gradients[0]
    total = (dy * y).sum(softmax_axes(op, y.rank))
    return y * (dy - total)
