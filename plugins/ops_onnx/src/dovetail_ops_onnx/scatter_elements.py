"""ScatterElements: https://onnx.ai/onnx/operators/onnx__ScatterElements.html."""

import math
from typing import ClassVar

from dovetail.op import KernelSource, ShapeError, TensorType
from dovetail_ops_onnx._places import places_along, rows_along
from dovetail_ops_onnx._scatter import InData, check_reduction, check_reduction_type, scatter, write_rows
from dovetail_ops_onnx._shapes import Movement, check_axis, check_indices
from dovetail_ops_onnx._types import BASIC, INDICES, Array


class ScatterElements(Movement):
    """The data with every update written to its own place, but for the coordinate along `axis`, which is the index's.

    `reduction` joins an update with the element there: `none` (the last one counts), `add`, `mul`, `max`, `min`.
    """

    since = 11
    inputs = ("data: T", "indices: Tind", "updates: T")
    outputs = ("output: T",)
    types = {"T": BASIC, "Tind": INDICES}
    kernels: ClassVar[tuple[KernelSource, ...]] = (InData(),)

    axis: int = 0
    reduction: str = "none"

    def __post_init__(self) -> None:
        check_reduction(self.reduction)

    def infer(self, data: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        """The data's type; indices and updates have one shape, which is nowhere larger than the data's but along the axis."""
        axis = check_axis(self.axis, data.rank)
        check_reduction_type(self.reduction, data.dtype)
        if indices.dims != updates.dims:
            raise ShapeError(f"input 'indices' is {indices}, input 'updates' {updates}; accepted: equal shapes")
        fits = indices.rank == data.rank
        if not fits or any(i > d for at, (i, d) in enumerate(zip(indices.dims, data.dims, strict=True)) if at != axis):
            raise ShapeError(
                f"input 'indices' is {indices}, input 'data' {data}; accepted: the same rank, and not larger outside axis {axis}"
            )
        return data.with_shape(data.dims)

    def reference(self, data: Array, indices: Array, updates: Array) -> Array:
        """The data with the updates. Raises `OperatorError` for an index out of range."""
        shape, rows = self._rows(indices, data.shape)
        return scatter(data.reshape(shape), rows, updates, self.reduction).reshape(data.shape)

    def write(self, dst: Array, indices: Array, updates: Array) -> None:
        """Write the updates into dst, which holds the data; nothing when an index is out of range, which raises."""
        shape, rows = self._rows(indices, dst.shape)
        write_rows(dst.reshape(shape), rows, updates)

    def _rows(self, indices: Array, dims: tuple[int, ...]) -> tuple[tuple[int, int], Array]:
        """The shape of the data as rows, and those that updates go to: single elements, unless whole rows go to a place."""
        axis = check_axis(self.axis, len(dims))
        check_indices(indices, dims[axis], axis)
        rows = rows_along(indices, axis, dims)
        if rows is None:
            return (math.prod(dims), 1), places_along(indices, axis, dims).reshape(-1)
        return (math.prod(dims[: axis + 1]), math.prod(dims[axis + 1 :])), rows
