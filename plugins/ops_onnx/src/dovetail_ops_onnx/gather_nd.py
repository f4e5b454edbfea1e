"""GatherND: https://onnx.ai/onnx/operators/onnx__GatherND.html."""

import math
from typing import ClassVar

import numpy as np

from dovetail.op import KernelSource, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._places import places_of
from dovetail_ops_onnx._shapes import Movement, check_indices
from dovetail_ops_onnx._strings import indexed
from dovetail_ops_onnx._types import BASIC, Array
from dovetail_ops_onnx._written import IntoResult


class GatherND(Movement):
    """The slices of the data at the coordinates in the last axis of `indices`, for each of the first `batch_dims` axes alone."""

    since = 11
    inputs = ("data: T", "indices: int64")
    outputs = ("output: T",)
    types = {"T": BASIC}
    kernels: ClassVar[tuple[KernelSource, ...]] = (IntoResult(),)

    batch_dims: int = 0

    def __post_init__(self) -> None:
        if self.batch_dims < 0:
            raise OperatorError(f"attribute 'batch_dims' is {self.batch_dims}; accepted: 0 or more")

    def infer(self, data: TensorType, indices: TensorType) -> TensorType:
        """The data's type in the shape of indices without its last axis, followed by that of the slices."""
        batch, dims, places = self.batch_dims, data.dims, indices.dims
        if batch >= min(len(dims), len(places)) or dims[:batch] != places[:batch]:
            raise ShapeError(
                f"input 'data' is {data}, input 'indices' {indices}; "
                f"accepted: equal sizes of the first {batch} axes (batch_dims), and more axes than that"
            )
        if not 1 <= places[-1] <= len(dims) - batch:
            raise ShapeError(f"the last axis of 'indices' has size {places[-1]}; accepted: 1 to {len(dims) - batch}")
        return data.with_shape((*places[:-1], *dims[batch + places[-1] :]))

    def reference(self, data: Array, indices: Array) -> Array:
        """The slices. Raises `OperatorError` for an index out of range."""
        shape = self.infer(TensorType.of(data), TensorType.of(indices)).dims
        batch, depth = self.batch_dims, indices.shape[-1]
        if not batch and depth == 1 and data.dtype != object:  # as behind NonZero of a vector
            try:
                return data.take(indices[..., 0], axis=0)
            except IndexError:
                check_indices(indices[..., 0], data.shape[0], 0)
                raise
        rows, places = self._rows(data, indices)
        return indexed(rows, (places,)).reshape(shape)

    def write(self, dst: Array, data: Array, indices: Array) -> None:
        """The same into dst."""
        rows, places = self._rows(data, indices)
        if dst.size:
            rows.take(places, 0, dst.reshape(places.size, *rows.shape[1:]), "clip")

    def _rows(self, data: Array, indices: Array) -> tuple[Array, Array]:
        """The data as rows of the slices' shape, and which of them are wanted."""
        batch, depth = self.batch_dims, indices.shape[-1]
        batches, leading = math.prod(data.shape[:batch]), data.shape[batch : batch + depth]
        index = places_of(indices, leading, batch)
        if batches > 1:
            index = (index.reshape(batches, -1) + np.arange(batches)[:, None] * math.prod(leading)).reshape(-1)
        return data.reshape(batches * math.prod(leading), *data.shape[batch + depth :]), index
