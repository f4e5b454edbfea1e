"""The derivative of Sqrt."""

from typing import Any


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY / (2 Y)."""
    y, dy = outputs[0], gradients[0]
    return dy / (2 * y)
