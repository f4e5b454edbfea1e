"""GlobalMaxPool, made of operators that have derivatives."""

from typing import Any

from dovetail.ops.reduce_max import ReduceMax


def compose(op: Any, inputs: Any) -> Any:
    """Y = the maximum over all spatial axes."""
    (x,) = inputs
    return x.apply(ReduceMax(), x.ints(range(2, x.rank)))
