"""Celu: https://onnx.ai/onnx/operators/onnx__Celu.html."""

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._types import FLOATS, Array


class Celu(Operator):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""

    since = 12
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    in_place = True

    alpha: float = 1.0

    def reference(self, x: Array) -> Array:
        """x where x > 0, else alpha * expm1(x / alpha); NaN stays NaN."""
        return computed(lambda v: np.where(v > 0, v, self.alpha * np.expm1(v / self.alpha)), x)
