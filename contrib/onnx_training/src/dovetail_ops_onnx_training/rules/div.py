"""The derivative of Div."""

from typing import Any


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dA = dY / B, dB = -dY Y / B, summed where they were broadcast."""
    a, b = inputs
    quotient = gradients[0] / b
    return quotient.like(a), (-quotient * outputs[0]).like(b)
