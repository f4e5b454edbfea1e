"""The derivative of ConvTranspose."""

from typing import Any

from dovetail_ops_onnx_training.rules._convolutions import forward, mirrored, weights


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY convolved with W, dW = dY convolved with X, dB = dY summed."""
    x, w, bias = (*inputs, None)[:3]
    dy = gradients[0]
    g = mirrored(op.geometry(x.type, w.type))
    dx = forward(dy, w, g, op.group)
    dw = weights(dy, x, g, op.group)
    return dx, dw, None if bias is None else dy.sum([0, *range(2, dy.rank)], keepdims=False)
