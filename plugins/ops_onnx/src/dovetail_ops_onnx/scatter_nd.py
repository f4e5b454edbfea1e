"""ScatterND: https://onnx.ai/onnx/operators/onnx__ScatterND.html."""

import math
from typing import ClassVar

from dovetail.op import KernelSource, ShapeError, TensorType
from dovetail_ops_onnx._places import places_of
from dovetail_ops_onnx._scatter import InData, check_reduction, check_reduction_type, scatter, write_rows
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import BASIC, Array


class ScatterND(Movement):
    """The data with the slices at the coordinates in the last axis of `indices` replaced by those of `updates`.

    `reduction` joins an update with the element there: `none` (the last one counts), `add`, `mul`, `max`, `min`.
    """

    since = 11
    inputs = ("data: T", "indices: int64", "updates: T")
    outputs = ("output: T",)
    types = {"T": BASIC}
    kernels: ClassVar[tuple[KernelSource, ...]] = (InData(),)

    reduction: str = "none"

    def __post_init__(self) -> None:
        check_reduction(self.reduction)

    def infer(self, data: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        """The data's type; updates have the shape of indices without its last axis, followed by that of the slices."""
        check_reduction_type(self.reduction, data.dtype)
        if data.rank == 0 or indices.rank == 0 or not 1 <= indices.dims[-1] <= data.rank:
            raise ShapeError(f"input 'indices' is {indices}, input 'data' {data}; accepted: a last axis of 1 to {data.rank}")
        wanted = (*indices.dims[:-1], *data.dims[indices.dims[-1] :])
        if updates.dims != wanted:
            raise ShapeError(f"input 'updates' is {updates}; accepted for indices {indices}: shape {list(wanted)}")
        return data.with_shape(data.dims)

    def reference(self, data: Array, indices: Array, updates: Array) -> Array:
        """The data with the updates. Raises `OperatorError` for an index out of range."""
        shape, rows = _rows(indices, data.shape)
        return scatter(data.reshape(shape), rows, updates, self.reduction).reshape(data.shape)

    def write(self, dst: Array, indices: Array, updates: Array) -> None:
        """Write the updates into dst, which holds the data; nothing when an index is out of range, which raises."""
        shape, rows = _rows(indices, dst.shape)
        write_rows(dst.reshape(shape), rows, updates)


def _rows(indices: Array, dims: tuple[int, ...]) -> tuple[tuple[int, int], Array]:
    """The shape of the data as rows of the slices' size, and those that updates go to."""
    depth = indices.shape[-1]
    return (math.prod(dims[:depth]), math.prod(dims[depth:])), places_of(indices, dims[:depth])
