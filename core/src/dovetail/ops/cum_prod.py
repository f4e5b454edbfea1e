"""CumProd: https://onnx.ai/onnx/operators/onnx__CumProd.html."""

import numpy as np

from dovetail.op import FLOATS, DType, Operator, TensorType
from dovetail.ops._elementwise import computed, scalar
from dovetail.ops._shapes import check_axis
from dovetail.ops._types import INDICES, Array


class CumProd(Operator):
    """The products of all elements up to each one along an axis: without itself when `exclusive`, from the end when `reverse`."""

    since = 26
    inputs = ("x: T", "axis: T2")
    outputs = ("y: T",)
    types = {"T": FLOATS | {DType.INT32, DType.INT64, DType.UINT32, DType.UINT64}, "T2": INDICES}

    exclusive: bool = False
    reverse: bool = False

    def infer(self, x: TensorType, axis: TensorType) -> TensorType:
        """The type of x."""
        scalar(axis, "axis")
        if axis.value is not None:
            check_axis(int(axis.value.reshape(())), x.rank)
        return x.with_shape(x.shape)

    def reference(self, x: Array, axis: Array) -> Array:
        """The running products; integers wrap."""
        along = check_axis(int(axis.reshape(())), x.ndim)
        return computed(lambda v: self._products(v, along), x)

    def _products(self, x: Array, axis: int) -> Array:
        rows = np.moveaxis(np.flip(x, axis) if self.reverse else x, axis, 0)
        if self.exclusive:
            rows = np.concatenate((np.ones_like(rows[:1]), rows[:-1]))
        products = np.moveaxis(np.cumprod(rows, 0, dtype=x.dtype), 0, axis)
        return np.flip(products, axis) if self.reverse else products
