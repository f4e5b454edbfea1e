"""The derivative of Slice."""

from typing import Any

from dovetail_ops_onnx_training.rules._places import put_back


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY where it was taken from, else 0."""
    x, dy = inputs[0], gradients[0]
    bounds = [None if b is None else [int(n) for n in b.known] for b in (*inputs[1:], None, None)[:4]]
    starts, ends = bounds[0] or [], bounds[1] or []
    axes, steps = bounds[2] or range(len(starts)), bounds[3] or [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        dy = put_back(dy, axis % x.rank, range(x.dims[axis])[start:end:step], x.dims[axis])
    return dy
