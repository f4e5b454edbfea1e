"""The derivative of ReduceMin."""

from typing import Any

from dovetail_ops_onnx_training.rules._reductions import to_chosen


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dY goes to the smallest elements, in equal parts."""
    return to_chosen(op, inputs, outputs, gradients)
