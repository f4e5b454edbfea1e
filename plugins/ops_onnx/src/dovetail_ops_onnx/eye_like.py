"""EyeLike: https://onnx.ai/onnx/operators/onnx__EyeLike.html."""

import numpy as np

from dovetail.op import NUMERIC, DType, ShapeError, TensorType
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import Array

_TYPES = NUMERIC | {DType.BOOL}


class EyeLike(Movement):
    """A matrix of the input's shape with ones on diagonal `k` (above the main one when positive), of type `dtype` if given."""

    since = 9
    inputs = ("input: T1",)
    outputs = ("output: T2",)
    types = {"T1": _TYPES, "T2": _TYPES}

    dtype: DType | None = None
    k: int = 0

    def infer(self, x: TensorType) -> TensorType:
        """A matrix."""
        if x.rank != 2:
            raise ShapeError(f"the input is {x}; accepted: a matrix")
        return TensorType(self.dtype or x.dtype, x.dims)

    def reference(self, x: Array) -> Array:
        """The matrix."""
        dtype = x.dtype if self.dtype is None else self.dtype.numpy
        return np.eye(x.shape[0], x.shape[1], self.k, dtype)
