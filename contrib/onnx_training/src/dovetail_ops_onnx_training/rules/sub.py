"""The derivative of Sub."""

from typing import Any


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dA = dY, dB = -dY, summed where they were broadcast."""
    a, b = inputs
    dy = gradients[0]
    return dy.like(a), (-dy).like(b)
