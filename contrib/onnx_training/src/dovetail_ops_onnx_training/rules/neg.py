"""The derivative of Neg."""

from typing import Any


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = -dY."""
    return -gradients[0]
