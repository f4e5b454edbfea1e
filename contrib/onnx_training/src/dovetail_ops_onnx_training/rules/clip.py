"""The derivative of Clip."""

from typing import Any

from dovetail_ops_onnx.clip import Clip
from dovetail_ops_onnx.greater import Greater
from dovetail_ops_onnx.less import Less
from dovetail_ops_onnx_training.values import select


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY between the limits; outside the limits get it."""
    x, *limits = inputs
    dy = gradients[0]
    if not isinstance(op, Clip):
        limits = [None if abs(limit) > 3.4e38 else x.constant(limit) for limit in (op.min, op.max)]
    low, high = (*limits, None, None)[:2]
    above = None if high is None else x.apply(Greater(), high)
    below = None if low is None else x.apply(Less(), low)
    dx = dy if below is None else select(below, 0, dy)
    dx = dx if above is None else select(above, 0, dx)
    ends = [
        None if outside is None else select(outside, dy, 0).sum(range(x.rank)).reshape(limit.dims)
        for outside, limit in ((below, low), (above, high))
    ]
    return (dx, *ends)
