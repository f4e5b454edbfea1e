"""The derivative of ReduceL1."""

from typing import Any

from dovetail_ops_onnx.sign import Sign
from dovetail_ops_onnx_training.rules._reductions import kept


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY sign(X)."""
    x, _, dy = kept(op, inputs, outputs, gradients)
    return dy * x.apply(Sign())
