"""The derivative of Abs."""

from typing import Any

from dovetail_ops_onnx.sign import Sign


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY sign(X)."""
    x, dy = inputs[0], gradients[0]
    return dy * x.apply(Sign())
