"""Crops of images."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import DataDependentShape
from dovetail.op import DType, OperatorError, ShapeError, TensorType
from dovetail_ops_onnxruntime_contrib._base import MicrosoftOperator

__all__ = ["CropAndResize"]

Array = NDArray[Any]


class CropAndResize(MicrosoftOperator):
    """Boxes of images X [N, C, H, W], resized to `crop_size`: [boxes, C, height, width].

    Boxes are [y1, x1, y2, x2] from 0 to 1, corners included; `batch_indices` names the image of each. Places outside the image
    get `extrapolation_value`.
    """

    inputs = ("X: T1", "rois: T1", "batch_indices: int32", "crop_size: int32")
    outputs = ("Y: T1",)
    types = {"T1": frozenset({DType.FLOAT32})}
    extrapolation_value: float = 0.0
    mode: str = "bilinear"

    def __post_init__(self) -> None:
        if self.mode not in ("bilinear", "nearest"):
            raise OperatorError(f"attribute 'mode' is {self.mode!r}; accepted: bilinear, nearest")

    def infer(self, X: TensorType, rois: TensorType, batch_indices: TensorType, crop_size: TensorType) -> TensorType:
        """[boxes, C, height, width]; the sizes must be known."""
        if X.rank != 4 or rois.rank != 2 or rois.dims[1] != 4 or batch_indices.dims != rois.dims[:1] or crop_size.size != 2:
            shown = f"'X' is {X}, 'rois' {rois}, 'batch_indices' {batch_indices}, 'crop_size' {crop_size}"
            raise ShapeError(f"{shown}; accepted: [N, C, H, W], [boxes, 4], [boxes], [2]")
        if crop_size.value is None:
            raise DataDependentShape("the output shape is in input 'crop_size', which is not known while planning")
        height, width = crop_size.value.reshape(-1).tolist()
        if height < 1 or width < 1:
            raise ShapeError(f"input 'crop_size' is {height}, {width}; accepted: 1 or more")
        return X.with_shape((rois.dims[0], X.dims[1], height, width))

    def reference(self, X: Array, rois: Array, batch_indices: Array, crop_size: Array) -> Array:
        """Rows and columns apart: each is the element before and after a place, and a weight."""
        if ((batch_indices < 0) | (batch_indices >= len(X))).any():
            raise OperatorError(f"input 'batch_indices' names images outside 0 to {len(X) - 1}")
        height, width = crop_size.reshape(-1).tolist()
        rows, columns = _places(rois[:, ::2], height, X.shape[2]), _places(rois[:, 1::2], width, X.shape[3])
        top, bottom, down = self._taps(rows, X.shape[2])
        left, right, across = self._taps(columns, X.shape[3])

        def at(row: Array, column: Array) -> Array:
            found: Array = X[batch_indices[:, None, None], :, row[:, :, None], column[:, None, :]]
            return found

        across, down = across[:, None, :, None], down[:, :, None, None]
        upper = at(top, left) + (at(top, right) - at(top, left)) * across
        lower = at(bottom, left) + (at(bottom, right) - at(bottom, left)) * across
        inside = _is_inside(rows, X.shape[2])[:, :, None, None] & _is_inside(columns, X.shape[3])[:, None, :, None]
        y = np.where(inside, upper + (lower - upper) * down, np.float32(self.extrapolation_value))
        return np.ascontiguousarray(y.transpose(0, 3, 1, 2))

    def _taps(self, places: Array, size: int) -> tuple[Array, Array, Array]:
        """The elements before and after each place, and the weight of the second."""
        places = np.clip(np.nan_to_num(places), 0, max(0, size - 1))
        if self.mode == "nearest":
            nearest = np.floor(places + np.float32(0.5)).astype(np.intp)
            return nearest, nearest, np.zeros_like(places)
        before = np.floor(places)
        return before.astype(np.intp), np.ceil(places).astype(np.intp), places - before


def _places(ends: Array, count: int, size: int) -> Array:
    """[boxes, count] places from the first to the last of an axis of `size` elements; the middle for a single one."""
    first, last = ends[:, :1], ends[:, 1:]
    if count == 1:
        return np.asarray(np.float32(0.5) * (first + last) * np.float32(size - 1))
    step = (last - first) * np.float32(size - 1) / np.float32(count - 1)
    return np.asarray(first * np.float32(size - 1) + np.arange(count, dtype=np.float32) * step)


def _is_inside(places: Array, size: int) -> Array:
    return np.asarray((places >= 0) & (places <= size - 1))
