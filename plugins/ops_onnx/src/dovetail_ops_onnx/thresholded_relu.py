"""ThresholdedRelu: https://onnx.ai/onnx/operators/onnx__ThresholdedRelu.html."""

import numpy as np

from dovetail_ops_onnx._elementwise import Function
from dovetail_ops_onnx._types import Array


class ThresholdedRelu(Function):
    """x where x is above alpha, else 0."""

    since = 10
    alpha: float = 1.0

    def function(self, x: Array) -> Array:
        """x where x > alpha, else 0; NaN stays NaN."""
        # Bits times one or zero: a vector instruction, where a choice among elements is none.
        bits = x.view(f"u{x.dtype.itemsize}")
        return np.asarray(np.multiply(bits, np.logical_not(x <= self.alpha), dtype=bits.dtype)).view(x.dtype)
