"""The derivative of Reciprocal."""

from typing import Any


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = -dY Y^2."""
    y, dy = outputs[0], gradients[0]
    return -dy * y * y
