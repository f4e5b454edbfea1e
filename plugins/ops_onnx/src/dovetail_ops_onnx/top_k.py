"""TopK: the k largest or smallest elements along an axis. https://onnx.ai/onnx/operators/onnx__TopK.html"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.op import NUMERIC, DType, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import highest, lowest
from dovetail_ops_onnx._shapes import check_axis, known
from dovetail_ops_onnx._types import Array, Types

_GROUPS = 4
"""Groups of a row for each element that is wanted: with two 1.4 times as many elements are left to sort, with four 1.15 times."""
_LEAST_GROUPS = 64
"""Groups of a row at least: extremes of many groups at once are vector instructions."""
_FEW = 800
"""Elements that are sorted as a whole in the time that it takes to choose among them."""
_SHORT = 4096
"""Elements of a single row up to which `partition` finds the bound in less time than groups, 10 us for 25."""

_KEYS, _LEAST, _NARROW = 1 << 10, 16, 256
"""Elements, and those of a row, from which on keys are sorted in less time than elements with their places; and elements of a row
up to which all are in less time than it takes to choose among them."""


class TopK(Operator):
    """Values and Indices of the K largest (or smallest) elements along `axis`, in order; of equal ones the lower index is first.

    NaN counts as larger than every number. With `sorted` 0 the order is not promised; it is the same here.
    """

    inputs = ("X: T", "K: int64")
    outputs = ("Values: T", "Indices: I")
    types = {"T": NUMERIC, "I": frozenset({DType.INT64})}
    legacy_attributes = {"k": "K"}
    axis: int = -1
    largest: bool = True
    sorted: bool = True

    def infer(self, X: TensorType, K: TensorType) -> tuple[TensorType, TensorType]:
        axis = check_axis(self.axis, X.rank)
        k = _count(known(K, "K"), X.dims[axis])
        shape = (*X.dims[:axis], k, *X.dims[axis + 1 :])
        return X.with_shape(shape), TensorType(DType.INT64, shape)

    def reference(self, X: Array, K: Array) -> tuple[Array, Array]:
        axis = check_axis(self.axis, X.ndim)
        size, count = X.shape[axis], _count(K, X.shape[axis])
        moved = X if axis == X.ndim - 1 else np.moveaxis(X, axis, -1)
        rows = moved.reshape(math.prod(moved.shape[:-1]), size)
        index = self._first(wide(rows), count) if rows.size and count else np.empty((len(rows), 0), np.intp)
        found = rows[np.arange(len(rows))[:, None], index], index.astype(np.int64, copy=False)
        values, places = (v.reshape(*moved.shape[:-1], count) for v in found)
        return (values, places) if moved is X else (np.moveaxis(values, -1, axis), np.moveaxis(places, -1, axis))

    def _first(self, rows: Array, count: int) -> Array:
        """The places [rows, count] of the first elements of each row, in order."""
        if count == 1:
            found: Array = rows.argmax(axis=1) if self.largest else rows.argmin(axis=1)
            if self.largest or rows.dtype.kind != "f" or not np.isnan(rows[np.arange(len(rows)), found]).any():
                return found[:, None]  # NumPy takes NaN for the smallest, too
        if len(rows) == 1 and 4 * count < rows.size <= _SHORT:
            return self._of_row(rows[0], count)
        if (rows.shape[1] <= _NARROW or rows.size <= _SHORT) and self._has_keys(rows):
            return _of_largest(rows, count)
        size = rows.shape[1] // max(_GROUPS * count, min(_LEAST_GROUPS, rows.shape[1] // 4))
        if size < 2 or rows.size < _FEW:
            return self._order(rows, count)
        groups = rows[:, : rows.shape[1] // size * size].reshape(len(rows), size, -1)
        with np.errstate(invalid="ignore"):
            # As many groups as elements are wanted reach the bound; a NaN is wanted in any case, or the bound itself.
            if self.largest:
                wanted = ~(rows < np.partition(groups.max(1), -count, 1)[:, -count, None])
            else:
                wanted = ~(rows > np.partition(groups.min(1), count - 1, 1)[:, count - 1, None])
        if 2 * np.count_nonzero(wanted) > rows.size:
            return self._order(rows, count)
        chosen = np.flatnonzero(wanted)
        row = chosen // rows.shape[1]
        counts = np.bincount(row, minlength=len(rows))
        taken = np.arange(counts.max()) < counts[:, None]
        places, values = np.zeros(taken.shape, np.intp), np.full(taken.shape, self._least(rows.dtype), rows.dtype)
        places[taken], values[taken] = chosen - row * rows.shape[1], rows.reshape(-1)[chosen]
        return np.take_along_axis(places, self._order(values, count), 1)

    def _of_row(self, row: Array, count: int) -> Array:
        """As `_first` of a single row."""
        # NaN sorts behind all numbers, and everything is chosen where the bound is NaN.
        with np.errstate(invalid="ignore"):
            if self.largest:
                chosen = np.flatnonzero(~(row < np.partition(row, -count)[-count]))
            else:
                chosen = np.flatnonzero(~(row > np.partition(row, count - 1)[count - 1]))
        return chosen[self._order(row[None, chosen], count)]

    def _least(self, dtype: np.dtype[Any]) -> Any:
        """An element that comes before no other."""
        if self.largest:
            return lowest(dtype)
        return np.nan if dtype.kind == "f" else highest(dtype)

    def _order(self, rows: Array, count: int) -> Array:
        """The places [rows, count] of the first elements of each row, in order; all are compared."""
        if not self.largest:
            return np.argsort(rows, axis=1, kind="stable")[:, :count]
        if self._has_keys(rows):
            return _of_largest(rows, count)
        # Ascending over the mirrored axis, read backwards: descending, and equal elements keep their order.
        order: Array = rows.shape[1] - 1 - np.argsort(rows[:, ::-1], axis=1, kind="stable")[:, ::-1][:, :count]
        return order

    def _has_keys(self, rows: Array) -> bool:
        """Whether `_of_largest` takes these, and less time than `argsort`."""
        fits = self.largest and rows.dtype == np.float32 and rows.size >= _KEYS and rows.shape[1] >= _LEAST
        return fits and not np.isnan(np.maximum.reduce(rows, axis=None))

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        assert inputs[0] is not None
        return inputs[0].size


def _of_largest(rows: Array, count: int) -> Array:
    """The places [rows, count] of the largest of each row of float32 without NaN, in order.

    Numbers are sorted by vector instructions, places are not: an integer has the bits of a number before those of its place.
    """
    bits = (rows + np.float32(0)).view(np.int32)  # -0 is 0
    bits ^= (bits >> 31) & np.int32(0x7FFFFFFF)
    keys = bits.astype(np.int64)
    keys <<= 32
    keys |= np.arange(rows.shape[1] - 1, -1, -1)
    keys.sort(axis=1)
    return np.asarray(rows.shape[1] - 1 - (keys[:, : -count - 1 : -1] & 0xFFFFFFFF))


def _count(K: Array, size: int) -> int:
    if K.size != 1:
        raise ShapeError(f"K has shape {list(K.shape)}; accepted: one number")
    k = int(K.reshape(()))
    if not 0 <= k <= size:
        raise OperatorError(f"K is {k}; accepted: 0 to {size}, the size of the axis")
    return k
