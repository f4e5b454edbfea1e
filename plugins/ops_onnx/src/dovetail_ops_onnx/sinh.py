"""Sinh: https://onnx.ai/onnx/operators/onnx__Sinh.html."""

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._types import FLOATS, Array


class Sinh(Operator):
    """Hyperbolic sine."""

    since = 9
    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """sinh(x)."""
        return computed(np.sinh, x)
