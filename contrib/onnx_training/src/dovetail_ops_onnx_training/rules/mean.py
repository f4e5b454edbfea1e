"""The derivative of Mean."""

from typing import Any


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY / n for each, summed where it was broadcast."""
    part = gradients[0] / len(inputs)
    return tuple(part.like(x) for x in inputs)
