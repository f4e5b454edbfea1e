"""The derivative of Mul."""

from typing import Any


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dA = dY B, dB = dY A, summed where they were broadcast."""
    a, b = inputs
    dy = gradients[0]
    return (dy * b).like(a), (dy * a).like(b)
