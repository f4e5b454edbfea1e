"""The derivative of ReduceLogSumExp."""

from typing import Any

from dovetail_ops_onnx.exp import Exp
from dovetail_ops_onnx_training.rules._reductions import kept


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY exp(X - Y)."""
    x = inputs[0]
    y, dy = kept(op, inputs, outputs[0], gradients[0])
    return dy * (x - y).apply(Exp())
