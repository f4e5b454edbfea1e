"""The derivative of ReduceMean."""

from typing import Any

from dovetail_ops_onnx_training.rules._reductions import kept


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY / n for each element."""
    x, _, dy = kept(op, inputs, outputs, gradients)
    return (dy / max(1, x.type.size // max(1, dy.type.size))).expand(x.dims)
