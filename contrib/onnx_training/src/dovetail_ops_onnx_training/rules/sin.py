"""The derivative of Sin."""

from typing import Any

from dovetail_ops_onnx.cos import Cos


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY cos(X)."""
    x, dy = inputs[0], gradients[0]
    return dy * x.apply(Cos())
