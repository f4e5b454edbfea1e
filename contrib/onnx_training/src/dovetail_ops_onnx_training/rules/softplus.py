"""The derivative of Softplus."""

from typing import Any

from dovetail_ops_onnx.sigmoid import Sigmoid


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY sigmoid(X)."""
    x, dy = inputs[0], gradients[0]
    return dy * x.apply(Sigmoid())
