"""The derivative of CumSum."""

from typing import Any

from dovetail_ops_onnx.cum_sum import CumSum


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY summed from the other end."""
    return gradients[0].apply(CumSum(exclusive=op.exclusive, reverse=not op.reverse), inputs[1])
