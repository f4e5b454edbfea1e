"""Unique: https://onnx.ai/onnx/operators/onnx__Unique.html."""

from typing import Any

import numpy as np

from dovetail.op import DType, TensorType
from dovetail_ops_onnx._shapes import Movement, check_axis
from dovetail_ops_onnx._strings import indexed, sorted_places
from dovetail_ops_onnx._types import BASIC, Array


class Unique(Movement):
    """The distinct elements (or slices along `axis`), where each is first, which one each element is, and how often it is there.

    Sorted, or in the order of the first occurrence.
    """

    since = 11
    inputs = ("X: T",)
    outputs = ("Y: T", "indices?: int64", "inverse_indices?: int64", "counts?: int64")
    types = {"T": BASIC}

    axis: int | None = None
    sorted: bool = True

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        """The input's type and three vectors of int64; the number of distinct elements is known when the data is."""
        open_vector = TensorType(DType.INT64, (None,))
        if self.axis is None:
            return x.with_shape((None,)), open_vector, TensorType(DType.INT64, (x.size,)), open_vector
        axis = check_axis(self.axis, x.rank)
        dims: list[int | None] = list(x.dims)
        dims[axis] = None
        return x.with_shape(tuple(dims)), open_vector, TensorType(DType.INT64, (x.dims[axis],)), open_vector

    def reference(self, x: Array) -> tuple[Array, ...]:
        """All four outputs; NaN is equal to no other element."""
        axis = None if self.axis is None else check_axis(self.axis, x.ndim)
        values, first, inverse, counts = _of_strings(x, axis) if x.dtype == object else _of_numbers(x, axis)
        if not self.sorted:
            order = np.argsort(first, kind="stable")
            values, first, counts = np.take(values, order, 0 if axis is None else axis), first[order], counts[order]
            inverse = np.argsort(order, kind="stable")[inverse]
        return values, *(v.astype(np.int64, copy=False) for v in (first, inverse, counts))


def _of_numbers(x: Array, axis: int | None) -> tuple[Array, ...]:
    # np.unique along an axis compares bytes; slices of other kinds are compared as they are.
    found = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis, equal_nan=False)
    return found[0], found[1], found[2].reshape(-1), found[3]


def _of_strings(x: Array, axis: int | None) -> tuple[Array, ...]:
    """As `numpy.unique`, which takes no axis of objects and sorts them in one call."""
    given = x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0)
    keys = given.flat if axis is None else (tuple(row) for row in given.reshape(len(given), x.size // max(1, len(given))))
    numbers: dict[Any, int] = {}
    inverse = np.fromiter((numbers.setdefault(key, len(numbers)) for key in keys), np.intp, len(given))
    _, first, counts = np.unique(inverse, return_index=True, return_counts=True)
    order = sorted_places(list(numbers))
    values = np.moveaxis(indexed(given, (first[order],)), 0, axis or 0)
    return values, first[order], np.argsort(order)[inverse], counts[order]
