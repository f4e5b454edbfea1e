"""ThresholdedRelu: https://onnx.ai/onnx/operators/onnx__ThresholdedRelu.html."""

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._types import FLOATS, Array


class ThresholdedRelu(Operator):
    """x where x is above alpha, else 0."""

    since = 10
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    in_place = True

    alpha: float = 1.0

    def reference(self, x: Array) -> Array:
        """x where x > alpha, else 0; NaN stays NaN."""
        return computed(self._kept, x)

    def _kept(self, x: Array) -> Array:
        # Bits times one or zero: a vector instruction, where a choice among elements is none.
        bits = x.view(f"u{x.dtype.itemsize}")
        return np.asarray(np.multiply(bits, np.logical_not(x <= self.alpha), dtype=bits.dtype)).view(x.dtype)
