"""GlobalAveragePool, made of operators that have derivatives."""

from typing import Any

from dovetail_ops_onnx.reduce_mean import ReduceMean


def compose(op: Any, inputs: Any) -> Any:
    """Y = the mean over all spatial axes."""
    (x,) = inputs
    return x.apply(ReduceMean(), x.ints(range(2, x.rank)))
