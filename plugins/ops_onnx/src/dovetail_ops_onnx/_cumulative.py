"""Shared by CumSum and CumProd: a running result along an axis."""

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from dovetail.op import FLOATS, DType, Operator, TensorType
from dovetail_ops_onnx._elementwise import computed, scalar
from dovetail_ops_onnx._shapes import check_axis
from dovetail_ops_onnx._types import INDICES, Array

__all__ = ["Cumulative"]


class Cumulative(Operator):
    """Base of running results: of all elements up to each one, without itself when `exclusive`, from the end when `reverse`."""

    inputs = ("x: T", "axis: T2")
    outputs = ("y: T",)
    types = {"T": FLOATS | {DType.INT32, DType.INT64, DType.UINT32, DType.UINT64}, "T2": INDICES}
    neutral: ClassVar[int]
    """The result of no elements."""

    exclusive: bool = False
    reverse: bool = False

    @abstractmethod
    def accumulate(self, rows: Array) -> Array:
        """The running result along axis 0, in the type of the rows; integers wrap."""

    def infer(self, x: TensorType, axis: TensorType) -> TensorType:
        """The type of x."""
        scalar(axis, "axis")
        if axis.value is not None:
            check_axis(int(axis.value.reshape(())), x.rank)
        return x.with_shape(x.shape)

    def reference(self, x: Array, axis: Array) -> Array:
        """The running results."""
        along = check_axis(int(axis.reshape(())), x.ndim)
        return computed(lambda v: self._along(v, along), x)

    def _along(self, x: Array, axis: int) -> Array:
        rows = np.moveaxis(np.flip(x, axis) if self.reverse else x, axis, 0)
        if self.exclusive:
            rows = np.concatenate((np.full_like(rows[:1], self.neutral), rows[:-1]))
        results = np.moveaxis(self.accumulate(rows), 0, axis)
        return np.flip(results, axis) if self.reverse else results
