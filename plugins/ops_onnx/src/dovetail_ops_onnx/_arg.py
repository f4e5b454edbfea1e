"""The base of ArgMax and ArgMin."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dovetail.op import NUMERIC, DType, Operator, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._shapes import check_axis
from dovetail_ops_onnx._types import Array, Types

_FEW = 64
"""Elements of a plane from which on it is faster to compare planes than to look along the axis."""
_MANY = 96
"""Planes from which on it is not."""
_LONG = 1 << 12
"""Elements of a plane from which on it is faster to compare one plane after the other, however many."""
_PART = 1 << 16
"""Elements that are compared at once: they stay in the cache."""


class ArgReduction(Operator, ABC):
    """reduced = the index along `axis` of the extreme element: of equal ones the first, or the last with `select_last_index`.

    A NaN counts as the extreme. A subclass defines `extreme` and `position`.
    """

    inputs = ("data: T",)
    outputs = ("reduced: int64",)
    types = {"T": NUMERIC}
    axis: int = 0
    keepdims: bool = True
    select_last_index: bool = False
    extreme: ClassVar[np.ufunc]
    """The larger or the smaller of two numbers."""

    def infer(self, data: TensorType) -> TensorType:
        axis = check_axis(self.axis, data.rank)
        if data.dims[axis] == 0:
            raise ShapeError(f"data is {data}: axis {axis} has no elements; accepted: at least one")
        kept = (1,) if self.keepdims else ()
        return TensorType(DType.INT64, (*data.dims[:axis], *kept, *data.dims[axis + 1 :]))

    def reference(self, data: Array) -> Array:
        axis = check_axis(self.axis, data.ndim)
        x = wide(data)
        inner = math.prod(x.shape[axis + 1 :])
        if (
            inner < _FEW
            or (x.shape[axis] > _MANY and inner < _LONG)
            or (planes := self._across(x.reshape(math.prod(x.shape[:axis]), x.shape[axis], inner))) is None
        ):
            last = data.shape[axis] - 1
            index = last - self.position(np.flip(x, axis), axis) if self.select_last_index else self.position(x, axis)
        else:
            index = planes.reshape((*x.shape[:axis], *x.shape[axis + 1 :]))
        kept = (1,) if self.keepdims else ()
        return np.asarray(index, np.int64).reshape((*x.shape[:axis], *kept, *x.shape[axis + 1 :]))

    def _across(self, x: Array) -> Array | None:
        """The indices [outer, inner] along the middle axis of x, plane by plane; None where an extreme is NaN."""
        outer, count, inner = x.shape
        y = np.empty((outer, inner), np.int64)
        if inner >= _LONG:
            return y if all(self._count_before(one, found) for one, found in zip(x, y, strict=True)) else None
        numbers = np.arange(1, count + 1, dtype=np.uint8)[:, None]
        ranks = numbers if self.select_last_index else numbers[::-1]
        step = max(_PART // count, _FEW)
        for part in (np.s_[n, :, first : first + step] for n in range(outer) for first in range(0, inner, step)):
            extreme = self.extreme.reduce(x[part], 0)
            if extreme.dtype.kind == "f" and np.isnan(extreme).any():
                return None
            rank = np.max((x[part] == extreme) * ranks, 0)
            y[part[0], part[2]] = rank - np.int64(1) if self.select_last_index else np.int64(count) - rank
        return y

    def _count_before(self, planes: Array, found: Array) -> bool:
        """Write how many of planes [count, inner] are before the first (or behind the last) extreme; False where one is NaN."""
        extreme = self.extreme.reduce(planes, 0)
        if extreme.dtype.kind == "f" and np.isnan(extreme).any():
            return False
        # Bits and bytes: three passes for each plane, of which two read a fourth of it.
        unseen, other = np.ones(extreme.shape, np.bool_), np.empty(extreme.shape, np.bool_)
        counts = np.zeros(extreme.shape, np.min_scalar_type(len(planes)))
        for plane in planes[:0:-1] if self.select_last_index else planes[:-1]:
            np.not_equal(plane, extreme, other)
            np.logical_and(unseen, other, unseen)
            np.add(counts, unseen.view(np.uint8), counts)
        np.subtract(len(planes) - 1, counts, found) if self.select_last_index else np.copyto(found, counts)
        return True

    @abstractmethod
    def position(self, x: Array, axis: int) -> Any:
        """The index of the first extreme element along `axis`, which is dropped."""

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        assert inputs[0] is not None
        return inputs[0].size
