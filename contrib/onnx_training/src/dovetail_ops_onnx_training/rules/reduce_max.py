"""The derivative of ReduceMax."""

from typing import Any

from dovetail_ops_onnx_training.rules._reductions import to_chosen


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dY goes to the greatest elements, in equal parts."""
    return to_chosen(op, inputs, outputs, gradients)
