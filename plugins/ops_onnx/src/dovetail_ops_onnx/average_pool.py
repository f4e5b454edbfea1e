"""AveragePool: the mean of each window. https://onnx.ai/onnx/operators/onnx__AveragePool.html"""

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail.op import TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._pooling import Pooling
from dovetail_ops_onnx._types import Array, Types
from dovetail_ops_onnx._windows import windows
from dovetail_ops_onnx.spatial import ConvGeometry


class AveragePool(Pooling):
    """Y [N, C, O1, ...] = mean of X [N, C, D1, ...] over windows.

    Elements outside the input do not count, with `count_include_pad` those of the padding count as zeros; what a window of
    `ceil_mode` reads beyond the padding never counts.
    """

    outputs = ("Y: T",)
    propagates_nan = True
    magnitude = "sum"
    count_include_pad: bool = False

    def counts(self, geometry: ConvGeometry) -> tuple[NDArray[np.int64], ...]:
        """For each spatial axis the number of elements that count at each output position: the divisor is their outer product."""
        return tuple(self._axis_count(geometry, axis) for axis in range(geometry.rank))

    def infer(self, X: TensorType) -> TensorType:
        return X.with_shape((*X.dims[:2], *self.geometry(X).output))

    def reference(self, X: Array) -> Array:
        geometry = self.geometry(TensorType.of(X))
        x = wide(X)
        window = geometry.trimmed
        view = windows(x, window, 0)
        total = np.zeros((*X.shape[:2], *geometry.output), x.dtype)
        with np.errstate(all="ignore"):
            for k in np.ndindex(*window.kernel):
                total += view[(..., *k)]
            total /= functools.reduce(np.multiply.outer, self.counts(geometry))
        return rounded(total, X.dtype)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return outputs[0].size * (int(np.prod(self.kernel_shape)) + 1)

    def _axis_count(self, g: ConvGeometry, axis: int) -> NDArray[np.int64]:
        low = -g.pads_begin[axis] if self.count_include_pad else 0
        high = g.input[axis] + (g.pads_end[axis] if self.count_include_pad else 0)
        first = np.arange(g.output[axis]) * g.strides[axis] - g.pads_begin[axis]
        step, last = g.dilations[axis], g.kernel[axis]
        before, until = (np.clip(-((first - bound) // step), 0, last) for bound in (low, high))
        return until - before
