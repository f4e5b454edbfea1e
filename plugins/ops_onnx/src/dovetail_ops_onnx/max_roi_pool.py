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
        y = np.zeros((len(rois), X.shape[1], *self.pooled_shape), X.dtype)
        for n, (batch, x1, y1, x2, y2) in enumerate(boxes):
            rows = self._parts(y1, y2, self.pooled_shape[0], X.shape[2])
            columns = self._parts(x1, x2, self.pooled_shape[1], X.shape[3])
            for i, j in np.ndindex(*self.pooled_shape):
                part = X[int(batch), :, rows[i], columns[j]]
                if part.size:
                    y[n, :, i, j] = part.max((1, 2))
        return y

    def _parts(self, start: float, stop: float, count: int, size: int) -> list[slice]:
        """The elements of an axis in each part."""
        first, last = (math.floor(abs(v) * self.spatial_scale + 0.5) * (1 if v >= 0 else -1) for v in (start, stop))
        step = max(last - first + 1, 1) / count
        ends = [(first + math.floor(i * step), first + math.ceil((i + 1) * step)) for i in range(count)]
        return [slice(min(max(a, 0), size), min(max(b, 0), size)) for a, b in ends]
