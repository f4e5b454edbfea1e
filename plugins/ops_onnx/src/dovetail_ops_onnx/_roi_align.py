"""RoiAlign without its attributes: bilinear samples of regions, averaged or their largest taken (He et al., Mask R-CNN, 2017)."""

import math
from collections.abc import Iterator

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.op import OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array
from dovetail_ops_onnx._weighted_rows import Taps, channels_last, weighted_rows

_PART = 1 << 18
"""Elements whose places are computed at once, for each channel."""


@dataclass(frozen=True)
class RoiSampling:
    """Output size, samples of each bin along an axis (0: one an element), scale of the boxes, and whether to shift by 1/2."""

    mode: str
    height: int
    width: int
    ratio: int
    scale: float
    half_pixel: bool

    def __post_init__(self) -> None:
        if self.mode not in ("avg", "max"):
            raise OperatorError(f"attribute 'mode' is {self.mode!r}; accepted: avg, max")
        if self.height < 1 or self.width < 1 or self.ratio < 0:
            raise OperatorError(
                f"output {self.height} x {self.width}, sampling_ratio {self.ratio}; accepted: 1 or more, 0 or more"
            )

    def infer(self, X: TensorType, rois: TensorType, batches: TensorType) -> TensorType:
        """[regions, C, height, width]."""
        if X.rank != 4 or rois.rank != 2 or rois.dims[1] != 4 or batches.dims != rois.dims[:1]:
            raise ShapeError(
                f"X is {X}, 'rois' {rois}, 'batch_indices' {batches}; accepted: [N, C, H, W], [regions, 4], [regions]"
            )
        return X.with_shape((rois.dims[0], X.dims[1], self.height, self.width))

    def compute(self, X: Array, rois: Array, batches: Array) -> Array:
        """The samples of each region. Raises `OperatorError` for a batch that does not exist or a box without an end."""
        if np.any((batches < 0) | (batches >= len(X))):
            raise OperatorError(f"input 'batch_indices' has values outside 0 to {len(X) - 1}")
        if not np.all(np.isfinite(rois.astype(np.float64))):
            raise OperatorError("input 'rois' has values that are not finite numbers")
        x, boxes = wide(X), wide(rois) * wide(rois).dtype.type(self.scale)
        y = np.zeros((len(rois), self.height * self.width, X.shape[1]), x.dtype)
        if y.size and x.size:
            with np.errstate(all="ignore"):
                self._fill(y, x.reshape(*x.shape[:2], -1), x.shape[2:], boxes, batches)
        return rounded(y.swapaxes(1, 2), X.dtype).reshape(len(rois), X.shape[1], self.height, self.width)

    def _fill(self, y: Array, planes: Array, sizes: tuple[int, ...], boxes: Array, batches: Array) -> None:
        """Write the bins of each box to y [boxes, bins, C]; `planes` are [N, C, height * width]."""
        start, length = self._extent(boxes)
        parts = [*self._parts(length)]
        bins, area = y.shape[1], planes.shape[2]
        taps = sum(4 * math.prod(count) * bins * len(own) for count, own in parts)
        rows = channels_last(planes, 0) if 4 * taps > len(planes) * area else None
        for count, own in parts:
            index, weight = self._taps(start[own], length[own], count, sizes)
            index += batches[own].repeat(bins) * area
            near, index = _read(planes, index) if rows is None else (rows, index)
            y[own] = weighted_rows(near, (index, weight), self.mode == "max").reshape(-1, *y.shape[1:])

    def _extent(self, boxes: Array) -> tuple[Array, Array]:
        """Start and length of each box [x1, y1, x2, y2] along y and x."""
        low, high = (boxes - 0.5 if self.half_pixel else boxes)[:, [1, 0, 3, 2]].reshape(-1, 2, 2).swapaxes(0, 1)
        length = (high - low).astype(np.float64)
        return low.astype(np.float64), length if self.half_pixel else np.maximum(length, 1)

    def _parts(self, length: Array) -> Iterator[tuple[tuple[int, int], Array]]:
        """Boxes with equal numbers of samples of a bin along y and x, not too many; those without samples are left out."""
        counts = np.ceil(length / (self.height, self.width)).astype(np.int64)
        if self.ratio:
            counts[:] = self.ratio
        for y, x in set(map(tuple, counts.tolist())):
            if y > 0 and x > 0:
                own = np.flatnonzero((counts == (y, x)).all(1))
                step = max(_PART // (4 * y * x * self.height * self.width), 1)
                yield from (((y, x), own[first : first + step]) for first in range(0, len(own), step))

    def _taps(self, start: Array, length: Array, count: tuple[int, int], sizes: tuple[int, ...]) -> Taps:
        """The elements [taps, regions * bins] of an image for regions with `count` samples of a bin, and their weights.

        ONNX takes the largest of the weighted neighbours, not of the interpolated samples.
        """
        axes = []
        for axis, bins in enumerate((self.height, self.width)):
            samples = np.add.outer(np.arange(count[axis]) + 0.5, np.arange(bins) * count[axis])
            at = start[:, axis, None] + samples[:, None] * (length[:, axis] / bins / count[axis])[:, None]
            lost, last = (at < -1) | (at > sizes[axis]), max(sizes[axis] - 1, 0)
            at = np.clip(at, 0, last)
            low = np.floor(at).astype(np.int64)
            near = np.concatenate((low, np.minimum(low + 1, last)))
            axes.append((near, np.where(np.concatenate((lost, lost)), 0, np.concatenate((low + 1 - at, at - low)))))
        (rows, by), (columns, bx) = axes  # [taps of an axis, regions, bins of the axis]
        index = rows[:, None, :, :, None] * sizes[1] + columns[:, :, None]
        weight = by[:, None, :, :, None] * (bx / (math.prod(count) if self.mode == "avg" else 1))[:, :, None]
        return index.reshape(len(rows) * len(columns), -1), weight.reshape(len(rows) * len(columns), -1)


def _read(planes: Array, index: Array) -> tuple[Array, Array]:
    """Only those rows of channels of planes [N, C, area] that are at `index`, and its index into them."""
    image, place = np.divmod(index.reshape(-1), planes.shape[2])
    return planes[image, :, place], np.arange(index.size).reshape(index.shape)
