"""The derivative of Acosh."""

from typing import Any

from dovetail_ops_onnx.sqrt import Sqrt


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY / sqrt(X^2 - 1)."""
    x, dy = inputs[0], gradients[0]
    return dy / (x * x - 1).apply(Sqrt())
