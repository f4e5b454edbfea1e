"""CumSum: https://onnx.ai/onnx/operators/onnx__CumSum.html."""

import numpy as np

from dovetail.op import FLOATS, DType, Operator, TensorType
from dovetail.ops._elementwise import computed, scalar
from dovetail.ops._shapes import check_axis
from dovetail.ops._types import INDICES, Array


class CumSum(Operator):
    """The sums of all elements up to each one along an axis: without itself when `exclusive`, from the end when `reverse`."""

    since = 11
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
        """The running sums; integers wrap."""
        along = check_axis(int(axis.reshape(())), x.ndim)
        return computed(lambda v: self._sums(v, along), x)

    def _sums(self, x: Array, axis: int) -> Array:
        forwards = np.flip(x, axis) if self.reverse else x
        sums = np.cumsum(forwards, axis, dtype=x.dtype)
        if self.exclusive:
            shifted = np.zeros_like(sums)
            shifted[_along(axis, 1, None)] = sums[_along(axis, None, -1)]
            sums = shifted
        return np.flip(sums, axis) if self.reverse else sums


def _along(axis: int, start: int | None, stop: int | None) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, slice(start, stop))
