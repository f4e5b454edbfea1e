"""The derivative of ReduceL2."""

from typing import Any

from dovetail_ops_onnx.equal import Equal
from dovetail_ops_onnx_training.rules._reductions import kept
from dovetail_ops_onnx_training.values import select


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY X / Y, 0 where Y is."""
    x, y, dy = kept(op, inputs, outputs, gradients)
    return x * (dy / select(y.apply(Equal(), 0), 1, y))
