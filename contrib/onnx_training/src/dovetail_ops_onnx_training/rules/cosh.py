"""The derivative of Cosh."""

from typing import Any

from dovetail_ops_onnx.sinh import Sinh


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY sinh(X)."""
    x, dy = inputs[0], gradients[0]
    return dy * x.apply(Sinh())
