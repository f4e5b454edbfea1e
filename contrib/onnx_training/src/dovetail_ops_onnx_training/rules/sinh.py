"""The derivative of Sinh."""

from typing import Any

from dovetail_ops_onnx.cosh import Cosh


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY cosh(X)."""
    x, dy = inputs[0], gradients[0]
    return dy * x.apply(Cosh())
