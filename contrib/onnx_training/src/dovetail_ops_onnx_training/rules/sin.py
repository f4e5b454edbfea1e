"""The derivative of Sin."""

from typing import Any

from dovetail_ops_onnx.cos import Cos


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY cos(X)."""
    (x,) = inputs
    dy = gradients[0]
    return dy * x.apply(Cos())
