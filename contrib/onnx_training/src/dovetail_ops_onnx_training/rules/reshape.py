"""The derivative of Reshape."""

from typing import Any


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY in the shape of X."""
    return gradients[0].reshape(inputs[0].dims)
