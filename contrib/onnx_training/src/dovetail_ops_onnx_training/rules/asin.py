"""The derivative of Asin."""

from typing import Any

from dovetail_ops_onnx.sqrt import Sqrt


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY / sqrt(1 - X^2)."""
    x, dy = inputs[0], gradients[0]
    return dy / (1 - x * x).apply(Sqrt())
