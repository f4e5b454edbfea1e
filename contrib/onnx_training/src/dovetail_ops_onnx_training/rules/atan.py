"""The derivative of Atan."""

from typing import Any


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY / (1 + X^2)."""
    x, dy = inputs[0], gradients[0]
    return dy / (1 + x * x)
