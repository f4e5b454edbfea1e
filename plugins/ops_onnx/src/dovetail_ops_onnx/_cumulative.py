"""Shared by CumSum and CumProd: a running result along an axis."""

from typing import Any, ClassVar

import numpy as np

from dovetail.op import FLOATS, DType, KernelSource, Operator, TensorType
from dovetail_ops_onnx._elementwise import computed, scalar
from dovetail_ops_onnx._shapes import check_axis
from dovetail_ops_onnx._types import INDICES, Array
from dovetail_ops_onnx._written import IntoResult

__all__ = ["Cumulative"]

_WIDE = 200
"""Elements of a plane across the axis from which on planes, 0.6 us each, are faster than elements, 3 ns each."""

_PAIRS: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.float32): np.dtype(np.complex64),
    np.dtype(np.float64): np.dtype(np.complex128),
}


class Cumulative(Operator):
    """Base of running results: of all elements up to each one, without itself when `exclusive`, from the end when `reverse`."""

    inputs = ("x: T", "axis: T2")
    outputs = ("y: T",)
    types = {"T": FLOATS | {DType.INT32, DType.INT64, DType.UINT32, DType.UINT64}, "T2": INDICES}
    kernels: ClassVar[tuple[KernelSource, ...]] = (IntoResult(),)
    ufunc: ClassVar[np.ufunc]
    """Joins two elements."""

    exclusive: bool = False
    reverse: bool = False

    def infer(self, x: TensorType, axis: TensorType) -> TensorType:
        """The type of x."""
        scalar(axis, "axis")
        if axis.value is not None:
            check_axis(int(axis.value.reshape(())), x.rank)
        return x.with_shape(x.shape)

    def reference(self, x: Array, axis: Array) -> Array:
        """The running results, in the type of x; integers wrap."""
        along = check_axis(int(axis.reshape(())), x.ndim)
        return computed(lambda v: self._along(v, np.empty(v.shape, v.dtype), along), x)

    def write(self, dst: Array, x: Array, axis: Array) -> None:
        """The same into dst."""
        if x.dtype.itemsize >= 4:
            self._along(x, dst, check_axis(int(axis.reshape(())), x.ndim))
        else:
            dst[...] = self.reference(x, axis)

    def _along(self, x: Array, results: Array, axis: int) -> Array:
        src, dst = x, results
        if axis:
            order = (axis, *range(axis), *range(axis + 1, x.ndim))
            src, dst = src.transpose(order), dst.transpose(order)
        if self.reverse:
            src, dst = src[::-1], dst[::-1]
        if self.exclusive:
            dst[:1] = self.ufunc.identity
            src, dst = src[:-1], dst[1:]
        if len(src) * _WIDE > x.size:
            self._accumulate(src, dst)
        elif len(src):
            dst[0] = src[0]
            for before, added, after in zip(dst, src[1:], dst[1:], strict=False):
                self.ufunc(before, added, after)
        return results

    def _accumulate(self, src: Array, dst: Array) -> None:
        """Along the first axis. Two neighbours are a complex number, whose sum takes as long as that of one."""
        pair = _PAIRS.get(src.dtype) if self.ufunc is np.add else None
        even = src.shape[-1] // 2 * 2
        if pair is None or src.ndim < 2 or any(a.strides[-1] != a.itemsize for a in (src, dst)):
            even = 0
        if pair is not None and even:
            np.add.accumulate(src[..., :even].view(pair), 0, pair, dst[..., :even].view(pair))
        if even < src.shape[-1]:
            rest = (..., slice(even, None)) if even else ()
            self.ufunc.accumulate(src[rest], 0, src.dtype, dst[rest])
