"""The derivative of Tan."""

from typing import Any


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY (1 + Y^2)."""
    y, dy = outputs[0], gradients[0]
    return dy * (1 + y * y)
