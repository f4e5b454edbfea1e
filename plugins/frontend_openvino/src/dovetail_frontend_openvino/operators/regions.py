"""Features of regions of a picture."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.op import FLOATS, Operator, OperatorError, ShapeError, TensorType

if TYPE_CHECKING:
    from dovetail.testing import Case

__all__ = ["PSROIPooling"]

Array = NDArray[Any]


class PSROIPooling(Operator):
    """Of each region a grid of `group_size` x `group_size` cells, each from channels of its own: [regions, output_dim, ...].

    Regions are [picture, x1, y1, x2, y2]. `average` takes the mean of a cell from one group of channels for each cell;
    `bilinear` the mean of points, one for each of the `spatial_bins`, from one group for each bin, of regions from 0 to 1.
    """

    domain: ClassVar[str] = "openvino"
    inputs = ("input: T", "coords: T")
    outputs = ("Y: T",)
    types = {"T": FLOATS}

    output_dim: int
    group_size: int
    spatial_scale: float
    mode: str = "average"
    spatial_bins_x: int = 1
    spatial_bins_y: int = 1

    def __post_init__(self) -> None:
        if self.mode not in ("average", "bilinear"):
            raise OperatorError(f"attribute 'mode' is {self.mode!r}; accepted: average, bilinear")
        for name in ("output_dim", "group_size", "spatial_bins_x", "spatial_bins_y"):
            if getattr(self, name) < 1:
                raise OperatorError(f"attribute '{name}' is {getattr(self, name)}; accepted: 1 or more")

    def infer(self, input: TensorType, coords: TensorType) -> TensorType:
        """[regions, output_dim, group_size, group_size]."""
        groups = self.group_size**2 if self.mode == "average" else self.spatial_bins_x * self.spatial_bins_y
        if input.rank != 4 or coords.rank != 2 or coords.dims[1] != 5 or input.dims[1] != self.output_dim * groups:
            accepted = f"[N, {self.output_dim * groups}, H, W] and [regions, 5], for mode {self.mode}"
            raise ShapeError(f"'input' is {input}, 'coords' {coords}; accepted: {accepted}")
        return input.with_shape((coords.dims[0], self.output_dim, self.group_size, self.group_size))

    def reference(self, input: Array, coords: Array) -> Array:
        """In float64. Raises `OperatorError` for a region of a picture that there is not."""
        if not ((coords[:, 0] >= 0) & (coords[:, 0] < len(input))).all():
            raise OperatorError(f"input 'coords' names pictures outside 0 to {len(input) - 1}")
        pictures, edges = coords[:, 0].astype(np.int64), coords[:, 1:].astype(np.float32)
        found = np.zeros((len(coords), self.output_dim, self.group_size, self.group_size))
        pool = self._average if self.mode == "average" else self._bilinear
        for picture in np.unique(pictures).tolist():
            own = pictures == picture
            with np.errstate(all="ignore"):
                found[own] = pool(input[picture].astype(np.float64), edges[own])
        return found.astype(input.dtype)

    def _average(self, x: Array, edges: Array) -> Array:
        """From sums over all rectangles that begin at the corner: four of them give the sum of any other."""
        rounded = np.trunc(edges + np.copysign(np.float32(0.5), edges))
        scale = np.float32(self.spatial_scale)
        low, high = rounded[:, :2] * scale, (rounded[:, 2:] + 1) * scale
        height, width = x.shape[1:]
        left, right = self._cells(low[:, 0], high[:, 0], width)
        top, bottom = self._cells(low[:, 1], high[:, 1], height)
        sums = np.pad(x.cumsum(1).cumsum(2), ((0, 0), (1, 0), (1, 0)))
        sums = sums.reshape(self.output_dim, self.group_size, self.group_size, height + 1, width + 1)
        channel = np.arange(self.output_dim)[:, None, None]
        row, column = np.arange(self.group_size)[:, None], np.arange(self.group_size)

        def at(y: Array, x: Array) -> Array:
            return np.asarray(sums[channel, row, column, y[:, None, :, None], x[:, None, None, :]])

        total = at(bottom, right) - at(top, right) - at(bottom, left) + at(top, left)
        areas = ((bottom - top)[:, :, None] * (right - left)[:, None])[:, None]
        return np.asarray(np.where(areas > 0, total / np.maximum(areas, 1), 0))

    def _cells(self, low: Array, high: Array, size: int) -> tuple[Array, Array]:
        """The first elements of the cells [regions, group_size] along an axis, and those behind the last."""
        extent = np.maximum(high - low, np.float32(0.1)) / np.float32(self.group_size)
        places = np.arange(self.group_size, dtype=np.float32)
        first = np.floor(low[:, None] + places * extent[:, None])
        last = np.ceil(low[:, None] + (places + 1) * extent[:, None])
        first, last = (np.clip(np.nan_to_num(places), 0, size).astype(np.int64) for places in (first, last))
        return first, last

    def _bilinear(self, x: Array, edges: Array) -> Array:
        scaled = edges * np.float32(self.spatial_scale)
        across = self._points(scaled[:, 0], scaled[:, 2], self.spatial_bins_x, x.shape[2])
        down = self._points(scaled[:, 1], scaled[:, 3], self.spatial_bins_y, x.shape[1])
        x = x.reshape(self.spatial_bins_y, self.spatial_bins_x, self.output_dim, *x.shape[1:])
        channel = np.arange(self.output_dim)[:, None, None]
        total = np.zeros((len(edges), self.output_dim, self.group_size, self.group_size))
        for i in range(self.spatial_bins_y):
            for j in range(self.spatial_bins_x):
                total += _sampled(x[i, j], channel, down[:, i][:, None, :, None], across[:, j][:, None, None, :])
        return total / (self.spatial_bins_x * self.spatial_bins_y)

    def _points(self, low: Array, high: Array, bins: int, size: int) -> Array:
        """[regions, bins, group_size] places along an axis of `size` elements: from edge to edge of each bin."""
        extent = ((high - low) / np.float32(bins))[:, None, None]
        first = low[:, None, None] + np.arange(bins, dtype=np.float32)[:, None] * extent
        if self.group_size == 1:
            return np.asarray((first + first + extent) * np.float32(size - 1) / 2)
        step = extent * np.float32(size - 1) / np.float32(self.group_size - 1)
        return np.asarray(np.arange(self.group_size, dtype=np.float32) * step + first * np.float32(size - 1))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> "Iterable[Case]":
        """Both modes on pictures whose means are known."""
        from dovetail_frontend_openvino.operators.cases import psroi_pooling  # here, because only tests need cases

        return psroi_pooling(rng)


def _sampled(x: Array, channel: Array, down: Array, across: Array) -> Array:
    """x [channels, H, W] between its elements, 0 outside."""
    height, width = x.shape[1:]
    inside = (down >= 0) & (down <= height - 1) & (across >= 0) & (across <= width - 1)
    down, across = np.clip(np.nan_to_num(down), 0, height - 1), np.clip(np.nan_to_num(across), 0, width - 1)
    top, left = np.floor(down).astype(np.int64), np.floor(across).astype(np.int64)
    bottom, right = np.ceil(down).astype(np.int64), np.ceil(across).astype(np.int64)
    upper = x[channel, top, left] + (x[channel, top, right] - x[channel, top, left]) * (across - left)
    lower = x[channel, bottom, left] + (x[channel, bottom, right] - x[channel, bottom, left]) * (across - left)
    return np.asarray(np.where(inside, upper + (lower - upper) * (down - top), 0))
