"""The derivative of ReduceSumSquare."""

from typing import Any

from dovetail_ops_onnx_training.rules._reductions import kept


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = 2 X dY."""
    x, _, dy = kept(op, inputs, outputs, gradients)
    return 2 * x * dy
