"""MaxRoiPool. https://onnx.ai/onnx/operators/onnx__MaxRoiPool.html (Girshick, Fast R-CNN, 2015)"""

import math

import numpy as np

from dovetail.op import FLOATS, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._types import Array


class MaxRoiPool(Operator):
    """The largest element in each of `pooled_shape` parts of regions [batch, x1, y1, x2, y2] of X; 0 where there is none."""

    since = 1
    inputs = ("X: T", "rois: T")
    outputs = ("Y: T",)
    types = {"T": FLOATS}

    pooled_shape: tuple[int, ...]
    spatial_scale: float = 1.0

    def __post_init__(self) -> None:
        if len(self.pooled_shape) != 2 or min(self.pooled_shape) < 1:
            raise OperatorError(f"attribute 'pooled_shape' is {self.pooled_shape}; accepted: height and width of 1 or more")

    def infer(self, X: TensorType, rois: TensorType) -> TensorType:
        """[regions, C, height, width]."""
        if X.rank != 4 or rois.rank != 2 or rois.dims[1] != 5:
            raise ShapeError(f"X is {X}, 'rois' {rois}; accepted: [N, C, H, W] and [regions, 5]")
        return X.with_shape((rois.dims[0], X.dims[1], *self.pooled_shape))

    def reference(self, X: Array, rois: Array) -> Array:
        """Region by region. Raises `OperatorError` for a batch that does not exist, and for what is not a finite number."""
        boxes = rois.astype(np.float64)
        if not np.all(np.isfinite(boxes)) or np.any((boxes[:, 0] < 0) | (boxes[:, 0] >= len(X))):
            raise OperatorError(f"input 'rois' has numbers that are not finite, or batches outside 0 to {len(X) - 1}")
        y = np.zeros((len(rois), *self.pooled_shape, X.shape[1]), X.dtype)
        images = np.ascontiguousarray(np.moveaxis(X, 1, 3))  # all channels of an element at once
        for dst, (batch, x1, y1, x2, y2) in zip(y, boxes, strict=True):
            lines = self._parts(y1, y2, self.pooled_shape[0], X.shape[2])
            columns = self._parts(x1, x2, self.pooled_shape[1], X.shape[3])
            inner = slice(columns[0].start, columns[-1].stop)
            for i, rows in enumerate(lines):
                if rows.stop > rows.start:
                    strip = images[int(batch), rows, inner].max(0)
                    for j, part in enumerate(columns):
                        if part.stop > part.start:
                            dst[i, j] = strip[part.start - inner.start : part.stop - inner.start].max(0)
        return np.ascontiguousarray(np.moveaxis(y, 3, 1))

    def _parts(self, start: float, stop: float, count: int, size: int) -> list[slice]:
        """The elements of an axis in each part."""
        first, last = (math.floor(abs(v) * self.spatial_scale + 0.5) * (1 if v >= 0 else -1) for v in (start, stop))
        length = max(last - first + 1, 1)
        # In whole numbers: 29 / 7 * 7 is more than 29.
        ends = [(first + i * length // count, first - (-(i + 1) * length // count)) for i in range(count)]
        return [slice(min(max(a, 0), size), min(max(b, 0), size)) for a, b in ends]
