"""The derivative of ReduceLogSumExp."""

from typing import Any

from dovetail_ops_onnx.exp import Exp
from dovetail_ops_onnx_training.rules._reductions import kept


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY exp(X - Y)."""
    x, y, dy = kept(op, inputs, outputs, gradients)
    return dy * (x - y).apply(Exp())
