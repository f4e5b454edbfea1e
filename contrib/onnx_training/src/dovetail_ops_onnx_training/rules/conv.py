"""The derivative of Conv."""

from typing import Any

from dovetail_ops_onnx_training.rules._convolutions import back, weights


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY transposed-convolved with W, dW = X convolved with dY, dB = dY summed."""
    x, w, bias = (*inputs, None)[:3]
    dy = gradients[0]
    g = op.geometry(x.type, w.type)
    dx = back(dy, w, g, op.group)
    dw = weights(x, dy, g, op.group)
    return dx, dw, None if bias is None else dy.sum([0, *range(2, dy.rank)], keepdims=False)
