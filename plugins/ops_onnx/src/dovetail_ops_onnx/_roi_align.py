"""RoiAlign without its attributes: bilinear samples of regions, averaged or their largest taken (He et al., Mask R-CNN, 2017)."""

import math

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.op import OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array


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
        y = np.zeros((len(rois), X.shape[1], self.height, self.width), wide(X).dtype)
        with np.errstate(all="ignore"):
            for n, batch in enumerate(batches):
                y[n] = self._region(wide(X)[batch], wide(rois)[n] * wide(rois).dtype.type(self.scale))
        return rounded(y, X.dtype)

    def _region(self, x: Array, box: Array) -> Array:
        shift = 0.5 if self.half_pixel else 0.0
        rows, by = _samples(box[1] - shift, box[3] - shift, self.height, self.ratio, x.shape[1], self.half_pixel)
        columns, bx = _samples(box[0] - shift, box[2] - shift, self.width, self.ratio, x.shape[2], self.half_pixel)
        parts = []
        for index_y, weight_y in rows:
            for index_x, weight_x in columns:
                values = x[:, index_y][:, :, index_x] * np.outer(weight_y, weight_x).astype(x.dtype)
                parts.append(values.reshape(len(x), self.height, by, self.width, bx))
        if not by * bx:
            return np.zeros((len(x), self.height, self.width), x.dtype)
        if self.mode == "avg":
            return np.asarray(np.asarray(sum(parts)).mean((2, 4)))
        # ONNX takes the largest of the weighted neighbours, not of the interpolated samples.
        return np.asarray(np.max(np.stack(parts), 0).max((2, 4)))


def _samples(
    start: float, stop: float, bins: int, ratio: int, size: int, half_pixel: bool
) -> tuple[list[tuple[Array, Array]], int]:
    """For each sample along an axis its two neighbours and their weights, and how many samples a bin has."""
    length = float(stop - start) if half_pixel else max(float(stop - start), 1.0)
    count = ratio or max(math.ceil(length / bins), 0)
    at = float(start) + (np.arange(bins * count) + 0.5) * (length / bins / max(count, 1))
    lost = (at < -1) | (at > size)
    at = np.clip(at, 0, max(size - 1, 0))
    low = np.floor(at).astype(np.int64)
    part = at - low
    high = np.minimum(low + 1, max(size - 1, 0))
    return [(low, np.where(lost, 0, 1 - part)), (high, np.where(lost, 0, part))], count
