"""The derivative of Log."""

from typing import Any


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY / X."""
    x, dy = inputs[0], gradients[0]
    return dy / x
