"""The derivative of ReduceSum."""

from typing import Any

from dovetail_ops_onnx_training.rules._reductions import kept


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY for each element."""
    x, _, dy = kept(op, inputs, outputs, gradients)
    return dy.expand(x.dims)
