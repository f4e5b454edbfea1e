"""OneHot: https://onnx.ai/onnx/operators/onnx__OneHot.html."""

import numpy as np

from dovetail.op import DType, ShapeError, TensorType
from dovetail_ops_onnx._casts import cast
from dovetail_ops_onnx._elementwise import scalar
from dovetail_ops_onnx._shapes import Movement, check_axis, known
from dovetail_ops_onnx._types import BASIC, NUMERIC, Array

_NUMBERS = NUMERIC - {DType.BFLOAT16}


class OneHot(Movement):
    """`values[1]` where a new axis of size `depth` equals the index, else `values[0]`.

    Negative indices count from the end; those outside -depth to depth - 1 give `values[0]` everywhere.
    """

    since = 9
    inputs = ("indices: T1", "depth: T2", "values: T3")
    outputs = ("output: T3",)
    types = {"T1": _NUMBERS, "T2": _NUMBERS, "T3": BASIC}

    axis: int = -1

    def infer(self, indices: TensorType, depth: TensorType, values: TensorType) -> TensorType:
        """The type of values in the indices' shape with the new axis; the depth must be known."""
        scalar(depth, "depth")
        if values.dims != (2,):
            raise ShapeError(f"input 'values' is {values}; accepted: the two elements [off, on]")
        axis = check_axis(self.axis, indices.rank + 1)
        return values.with_shape((*indices.dims[:axis], _depth(known(depth, "depth")), *indices.dims[axis:]))

    def reference(self, indices: Array, depth: Array, values: Array) -> Array:
        """The values where the indices say."""
        count, axis = _depth(depth), check_axis(self.axis, indices.ndim + 1)
        whole = cast(indices, DType.INT64)
        positions = np.where(whole < 0, whole + count, whole)
        y = np.full((*indices.shape[:axis], count, *indices.shape[axis:]), values[0], values.dtype)
        if count:
            chosen = np.where((positions >= 0) & (positions < count), values[1], values[0]).astype(values.dtype, copy=False)
            at = np.clip(positions, 0, count - 1)
            np.put_along_axis(y, np.expand_dims(at, axis), np.expand_dims(chosen, axis), axis)
        return y


def _depth(depth: Array) -> int:
    count = int(cast(depth, DType.INT64).reshape(()))
    if count < 0:
        raise ShapeError(f"depth is {count}; accepted: 0 or more")
    return count
