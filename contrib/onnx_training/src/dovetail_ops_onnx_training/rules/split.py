"""The derivative of Split."""

from typing import Any

from dovetail_ops_onnx.concat import Concat


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = the derivatives of its parts, zeros where there is none, side by side."""
    parts = [y.zeros() if dy is None else dy for y, dy in zip(outputs, gradients, strict=True)]
    return parts[0].apply(Concat(axis=op.axis), *parts[1:])
