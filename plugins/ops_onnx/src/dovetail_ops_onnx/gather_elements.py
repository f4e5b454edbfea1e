"""GatherElements: https://onnx.ai/onnx/operators/onnx__GatherElements.html."""

import math
from typing import ClassVar

import numpy as np

from dovetail.op import KernelSource, ShapeError, TensorType
from dovetail_ops_onnx._places import places_along, rows_along
from dovetail_ops_onnx._shapes import Movement, check_axis, check_indices
from dovetail_ops_onnx._strings import indexed
from dovetail_ops_onnx._types import BASIC, INDICES, Array
from dovetail_ops_onnx._written import IntoResult


class GatherElements(Movement):
    """For every index the data's element at the same place, with the index in place of the coordinate along `axis`."""

    since = 11
    inputs = ("data: T", "indices: Tind")
    outputs = ("output: T",)
    types = {"T": BASIC, "Tind": INDICES}
    kernels: ClassVar[tuple[KernelSource, ...]] = (IntoResult(),)

    axis: int = 0

    def infer(self, data: TensorType, indices: TensorType) -> TensorType:
        """The data's type in the indices' shape, which is nowhere larger than the data's but along the axis."""
        axis = check_axis(self.axis, data.rank)
        fits = len(indices.dims) == data.rank
        if not fits or any(i > d for at, (i, d) in enumerate(zip(indices.dims, data.dims, strict=True)) if at != axis):
            raise ShapeError(
                f"input 'indices' is {indices}, input 'data' {data}; accepted: the same rank, and not larger outside axis {axis}"
            )
        return data.with_shape(indices.dims)

    def reference(self, data: Array, indices: Array) -> Array:
        """data[i, ..., indices[i, ..., n], ..., n]. Raises `OperatorError` for an index out of range."""
        if data.dtype == object:
            axis = check_axis(self.axis, data.ndim)
            check_indices(indices, data.shape[axis], axis)
            return indexed(data.reshape(-1), (places_along(indices, axis, data.shape),))
        y = np.empty(indices.shape, data.dtype)
        self.write(y, data, indices)
        return y

    def write(self, dst: Array, data: Array, indices: Array) -> None:
        """The same into dst."""
        axis = check_axis(self.axis, data.ndim)
        check_indices(indices, data.shape[axis], axis)
        if not dst.size:
            return
        rows = rows_along(indices, axis, data.shape)
        if rows is None:
            data.reshape(-1).take(places_along(indices, axis, data.shape), None, dst, "clip")
        else:
            data.reshape(math.prod(data.shape[: axis + 1]), -1).take(rows, 0, dst.reshape(rows.size, -1), "clip")
