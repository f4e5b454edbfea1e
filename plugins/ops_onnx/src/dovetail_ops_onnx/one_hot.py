"""OneHot: https://onnx.ai/onnx/operators/onnx__OneHot.html."""

from typing import ClassVar

import numpy as np

from dovetail.op import DType, KernelSource, ShapeError, TensorType
from dovetail_ops_onnx._casts import cast
from dovetail_ops_onnx._elementwise import scalar
from dovetail_ops_onnx._places import places_along
from dovetail_ops_onnx._shapes import Movement, are_below, check_axis, known
from dovetail_ops_onnx._types import BASIC, NUMERIC, Array
from dovetail_ops_onnx._written import IntoResult

_NUMBERS = NUMERIC - {DType.BFLOAT16}


class OneHot(Movement):
    """`values[1]` where a new axis of size `depth` equals the index, else `values[0]`.

    Negative indices count from the end; those outside -depth to depth - 1 give `values[0]` everywhere.
    """

    since = 9
    inputs = ("indices: T1", "depth: T2", "values: T3")
    outputs = ("output: T3",)
    types = {"T1": _NUMBERS, "T2": _NUMBERS, "T3": BASIC}
    kernels: ClassVar[tuple[KernelSource, ...]] = (IntoResult(),)

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
        axis = check_axis(self.axis, indices.ndim + 1)
        y = np.empty((*indices.shape[:axis], _depth(depth), *indices.shape[axis:]), values.dtype)
        self.write(y, indices, depth, values)
        return y

    def write(self, dst: Array, indices: Array, depth: Array, values: Array) -> None:
        """The values into dst."""
        dst[...] = values[0]
        if not dst.size:
            return
        axis = check_axis(self.axis, indices.ndim + 1)
        count, whole = dst.shape[axis], cast(indices, DType.INT64)
        places = places_along(np.expand_dims(whole, axis), axis, dst.shape).reshape(-1)
        if not are_below(whole, count):
            places = places[((whole >= -count) & (whole < count)).reshape(-1)]
        dst.reshape(-1)[places] = values[1]


def _depth(depth: Array) -> int:
    count = int(cast(depth, DType.INT64).reshape(()))
    if count < 0:
        raise ShapeError(f"depth is {count}; accepted: 0 or more")
    return count
