"""The derivative of Cos."""

from typing import Any

from dovetail_ops_onnx.sin import Sin


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = -dY sin(X)."""
    x, dy = inputs[0], gradients[0]
    return -dy * x.apply(Sin())
