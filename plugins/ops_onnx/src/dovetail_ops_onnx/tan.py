"""Tan: https://onnx.ai/onnx/operators/onnx__Tan.html."""

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._types import FLOATS, Array


class Tan(Operator):
    """Tangent of an angle in radians."""

    since = 7
    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """tan(x)."""
        return computed(np.tan, x)
