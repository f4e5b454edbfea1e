"""The derivative of Where."""

from typing import Any

from dovetail_ops_onnx_training.values import select


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY where the condition holds, dY where it does not, summed where they were broadcast."""
    condition, x, y = inputs
    dy = gradients[0]
    return None, select(condition, dy, 0).like(x), select(condition, 0, dy).like(y)
