"""EyeLike: https://onnx.ai/onnx/operators/onnx__EyeLike.html."""

from typing import ClassVar

import numpy as np

from dovetail.op import NUMERIC, DType, KernelSource, ShapeError, TensorType
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import Array
from dovetail_ops_onnx._written import IntoResult

_TYPES = NUMERIC | {DType.BOOL}


class EyeLike(Movement):
    """A matrix of the input's shape with ones on diagonal `k` (above the main one when positive), of type `dtype` if given."""

    since = 9
    inputs = ("input: T1",)
    outputs = ("output: T2",)
    types = {"T1": _TYPES, "T2": _TYPES}
    kernels: ClassVar[tuple[KernelSource, ...]] = (IntoResult(),)

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

    def write(self, dst: Array, x: Array) -> None:
        """The matrix into dst."""
        dst.fill(0)
        rows, columns = dst.shape
        first, count = max(self.k, 0) - min(self.k, 0) * columns, min(rows + min(self.k, 0), columns - max(self.k, 0))
        if count > 0:
            dst.reshape(-1)[first : first + count * (columns + 1) : columns + 1] = 1
