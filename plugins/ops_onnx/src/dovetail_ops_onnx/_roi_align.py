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
_MOST = 1 << 15
"""Samples of a bin along an axis that an attribute may ask for: their places are computed at once."""

Pair = tuple[int, int]
"""A number for each axis."""


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
        if self.height < 1 or self.width < 1 or not 0 <= self.ratio <= _MOST:
            raise OperatorError(
                f"output {self.height} x {self.width}, sampling_ratio {self.ratio}; accepted: 1 or more, 0 to {_MOST}"
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
        parts = [*self._parts(start, length, sizes)]
        bins, area = y.shape[1], planes.shape[2]
        taps = sum(4 * math.prod(spans) * bins * len(own) for _, spans, own in parts)
        rows = channels_last(planes, 0) if 4 * taps > len(planes) * area else None
        joins = np.maximum if self.mode == "max" else np.add
        for count, spans, own in parts:
            found = None
            for index, weight in self._taps(start[own], length[own], count, spans, sizes):
                index += batches[own].repeat(bins) * area
                near, index = _read(planes, index) if rows is None else (rows, index)
                more = weighted_rows(near, (index, weight), self.mode == "max")
                found = more if found is None else joins(found, more)
            y[own] = np.asarray(found).reshape(-1, *y.shape[1:])

    def _extent(self, boxes: Array) -> tuple[Array, Array]:
        """Start and length of each box [x1, y1, x2, y2] along y and x."""
        low, high = (boxes - 0.5 if self.half_pixel else boxes)[:, [1, 0, 3, 2]].reshape(-1, 2, 2).swapaxes(0, 1)
        length = (high - low).astype(np.float64)
        return low.astype(np.float64), length if self.half_pixel else np.maximum(length, 1)

    def _parts(self, start: Array, length: Array, sizes: tuple[int, ...]) -> Iterator[tuple[Pair, Pair, Array]]:
        """Boxes with equal numbers of samples of a bin along y and x, not too many; those without samples are left out.

        With these numbers and those of the samples that may be in an image: a box far beyond it would have any number of others.
        """
        counts = np.ceil(length / (self.height, self.width)).astype(np.int64)
        if self.ratio:
            counts[:] = self.ratio
        for y, x in set(map(tuple, counts.tolist())):
            if y > 0 and x > 0:
                own = np.flatnonzero((counts == (y, x)).all(1))
                first, second = (self._inside(axis, start[own], length[own], (y, x)[axis], sizes)[1] for axis in (0, 1))
                step = max(_PART // (4 * first * second * self.height * self.width), 1)
                yield from (((y, x), (first, second), own[at : at + step]) for at in range(0, len(own), step))

    def _inside(self, axis: int, start: Array, length: Array, count: int, sizes: tuple[int, ...]) -> tuple[Array, int]:
        """The first sample [regions, bins] of those of each bin that are inside along an axis, and how many are, at most.

        One more at either end: where samples are lost, the largest of a bin is 0 or more.
        """
        bins = (self.height, self.width)[axis]
        step = length[:, axis, None] / bins / count
        begin = start[:, axis, None] + np.arange(bins) * (length[:, axis, None] / bins)
        with np.errstate(all="ignore"):
            one, other = ((edge - begin) / step - 0.5 for edge in (-1, sizes[axis]))
        # Two more, one of them for rounding. A box without length has all samples in one place.
        low = np.where(step == 0, 0, np.floor(np.clip(np.nan_to_num(np.minimum(one, other) - 2), 0, count - 1)))
        high = np.where(step == 0, count - 1, np.floor(np.clip(np.nan_to_num(np.maximum(one, other) + 2), 0, count - 1)))
        return low, int((high - low).max()) + 1

    def _taps(self, start: Array, length: Array, count: Pair, spans: Pair, sizes: tuple[int, ...]) -> Iterator[Taps]:
        """The elements [taps, regions * bins] of an image for regions with `count` samples of a bin, and their weights; in parts.

        ONNX takes the largest of the weighted neighbours, not of the interpolated samples.
        """
        axes = []
        for axis, bins in enumerate((self.height, self.width)):
            first = self._inside(axis, start, length, count[axis], sizes)[0]
            first = np.minimum(first, count[axis] - spans[axis])
            samples = np.arange(spans[axis])[:, None, None] + 0.5 + (first + np.arange(bins) * float(count[axis]))
            at = start[:, axis, None] + samples * (length[:, axis] / bins / count[axis])[:, None]
            lost, last = (at < -1) | (at > sizes[axis]), max(sizes[axis] - 1, 0)
            at = np.clip(at, 0, last)
            low = np.floor(at).astype(np.int64)
            near = np.concatenate((low, np.minimum(low + 1, last)))
            axes.append((near, np.where(np.concatenate((lost, lost)), 0, np.concatenate((low + 1 - at, at - low)))))
        (rows, by), (columns, bx) = axes  # [taps of an axis, regions, bins of the axis]
        bx = bx / (math.prod(count) if self.mode == "avg" else 1)
        step = max(4 * _PART // (columns.size * self.height), 1)
        for part in (slice(at, at + step) for at in range(0, len(rows), step)):
            index = rows[part, None, :, :, None] * sizes[1] + columns[:, :, None]
            weight = by[part, None, :, :, None] * bx[:, :, None]
            yield index.reshape(-1, index[0, 0].size), weight.reshape(-1, index[0, 0].size)


def _read(planes: Array, index: Array) -> tuple[Array, Array]:
    """Only those rows of channels of planes [N, C, area] that are at `index`, and its index into them."""
    image, place = np.divmod(index.reshape(-1), planes.shape[2])
    return planes[image, :, place], np.arange(index.size).reshape(index.shape)
