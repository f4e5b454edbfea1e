"""The derivative of Sigmoid."""

from typing import Any


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY Y (1 - Y)."""
    y, dy = outputs[0], gradients[0]
    return dy * y * (1 - y)
