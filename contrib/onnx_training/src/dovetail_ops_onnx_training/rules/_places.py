"""Elements that were taken from places, and are put back there."""

from typing import Any

import numpy as np

from dovetail.op import DType, OperatorError
from dovetail_ops_onnx.pad import Pad
from dovetail_ops_onnx.scatter_elements import ScatterElements
from dovetail_ops_onnx_training.values import Value

__all__ = ["put_back", "require"]


def put_back(x: Value, axis: int, places: range, size: int) -> Value:
    """Zeros of `size` along the axis, with x at the places."""
    if places == range(size):
        return x
    if places.step == 1 and places:
        pads = [0] * (2 * x.rank)
        pads[axis], pads[x.rank + axis] = places.start, size - places.stop
        return x.apply(Pad(), x.ints(pads))
    dims = (*x.dims[:axis], size, *x.dims[axis + 1 :])
    column = np.asarray(places, np.int64).reshape([-1 if i == axis else 1 for i in range(x.rank)])
    indices = x.constant(column, DType.INT64).expand(x.dims)
    return x.constant(0).expand(dims).apply(ScatterElements(axis=axis), indices, x)


def require(op: Any, accepted: tuple[str, ...]) -> None:
    """Raise `OperatorError` for another `reduction`."""
    if op.reduction not in accepted:
        raise OperatorError(f"{op.key} with reduction {op.reduction!r} has no derivative here; accepted: {', '.join(accepted)}")
