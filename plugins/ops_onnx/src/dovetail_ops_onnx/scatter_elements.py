"""ScatterElements: https://onnx.ai/onnx/operators/onnx__ScatterElements.html."""

from typing import ClassVar

from dovetail.op import KernelSource, ShapeError, TensorType
from dovetail_ops_onnx._scatter import InData, check_reduction, check_reduction_type, scatter
from dovetail_ops_onnx._shapes import Movement, check_axis, check_indices
from dovetail_ops_onnx._types import BASIC, INDICES, Array
from dovetail_ops_onnx.gather_elements import places_along


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
        if self.reduction != "none" and data.ndim > 1 and self._of_rows(indices, data.shape):
            check_indices(indices, data.shape[0], 0)
            return scatter(data, (indices.reshape(len(indices), -1)[:, 0],), updates, self.reduction)
        places = self._places(indices, data.shape)
        return scatter(data.reshape(-1), (places,), updates.reshape(-1), self.reduction).reshape(data.shape)

    def _of_rows(self, indices: Array, dims: tuple[int, ...]) -> bool:
        """Whether whole rows go to a place, as where graph networks sum the messages of edges."""
        if check_axis(self.axis, len(dims)) or indices.shape[1:] != dims[1:] or not indices.size:
            return False
        rows = indices.reshape(len(indices), -1)
        return bool((rows == rows[:, :1]).all())

    def write(self, dst: Array, indices: Array, updates: Array) -> None:
        """Write the updates into dst, which holds the data; nothing when an index is out of range, which raises."""
        dst.reshape(-1)[self._places(indices, dst.shape)] = updates.reshape(-1)

    def _places(self, indices: Array, dims: tuple[int, ...]) -> Array:
        axis = check_axis(self.axis, len(dims))
        check_indices(indices, dims[axis], axis)
        return places_along(indices, axis, dims).reshape(-1)
