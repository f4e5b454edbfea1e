"""MultiThreshold: how many thresholds each number reaches. https://github.com/fastmachinelearning/qonnx"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import FLOATS, OperatorError, ShapeError, TensorType
from dovetail_ops_qonnx._base import QonnxOperator

__all__ = ["MultiThreshold"]

_LAYOUTS = {2: "NC", 3: "NWC", 4: "NCHW"}
"""By rank where a model names none, as in QONNX. Other ranks have channels as axis 1."""


class MultiThreshold(QonnxOperator):
    """y = out_scale * n + out_bias, where n counts the thresholds of the number's channel that are not above it.

    `thresholds` [C, steps], or [1, steps] for all channels alike. `data_layout` has a letter for each axis of x, C for channels.
    `out_dtype` changes nothing: y has the type of x.
    """

    inputs = ("x: T", "thresholds: T")
    outputs = ("y: T",)
    types = {"T": FLOATS}
    out_dtype: str = ""
    out_scale: float = 1.0
    out_bias: float = 0.0
    data_layout: str = ""

    def infer(self, x: TensorType, thresholds: TensorType) -> TensorType:
        """The type of x."""
        channels = x.dims[self._axis(x.rank)]
        if thresholds.rank != 2 or thresholds.dims[0] not in (1, channels):
            raise ShapeError(f"'x' is {x}, 'thresholds' {thresholds}; accepted: [{channels}, steps] or [1, steps]")
        return x.with_shape(x.dims)

    def reference(self, x: NDArray[Any], thresholds: NDArray[Any]) -> NDArray[Any]:
        """By binary search, channel by channel; NaN reaches none."""
        ordered = np.sort(thresholds, axis=1)
        channels = np.moveaxis(x, self._axis(x.ndim), 0)
        counts = np.empty(channels.shape, np.float64)
        for channel, own in enumerate(channels):
            steps = ordered[channel % len(ordered)]
            counts[channel] = np.where(np.isnan(own), 0, np.searchsorted(steps, own, side="right"))
        scaled = self.out_scale * counts + self.out_bias
        return np.ascontiguousarray(np.moveaxis(scaled, 0, self._axis(x.ndim))).astype(x.dtype)

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        """Two for each number, and its search."""
        return 8 * outputs[0].size

    def _axis(self, rank: int) -> int:
        layout = self.data_layout or _LAYOUTS.get(rank, "")
        axis = layout.find("C") if "C" in layout else 1
        if axis >= rank:
            raise OperatorError(f"'x' has {rank} axes, channels are axis {axis} (attribute 'data_layout'); accepted: more axes")
        return axis
