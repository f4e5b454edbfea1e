"""The derivative of Expand."""

from typing import Any


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY, summed where it was broadcast."""
    return gradients[0].like(inputs[0])
