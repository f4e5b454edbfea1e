"""ReduceLogSum, made of operators that have derivatives."""

from typing import Any

from dovetail_ops_onnx.log import Log
from dovetail_ops_onnx.reduce_sum import ReduceSum


def compose(op: Any, inputs: Any) -> Any:
    """Y = log(sum of X)."""
    x, axes = (*inputs, None)[:2]
    total = x.apply(ReduceSum(keepdims=op.keepdims, noop_with_empty_axes=op.noop_with_empty_axes), axes)
    return total.apply(Log())
