"""GlobalMaxPool, made of operators that have derivatives."""

from typing import Any

from dovetail_ops_onnx.reduce_max import ReduceMax


def compose(op: Any, inputs: Any) -> Any:
    """Y = the maximum over all spatial axes."""
    (x,) = inputs
    return x.apply(ReduceMax(), x.ints(range(2, x.rank)))
