"""The derivative of LogSoftmax."""

from typing import Any

from dovetail_ops_onnx.exp import Exp
from dovetail_ops_onnx_training.rules._axes import softmax_axes


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY - exp(Y) sum(dY)."""
    y, dy = outputs[0], gradients[0]
    return dy - y.apply(Exp()) * dy.sum(softmax_axes(op, y.rank))
