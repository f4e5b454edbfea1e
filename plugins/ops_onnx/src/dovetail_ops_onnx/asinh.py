"""Asinh: https://onnx.ai/onnx/operators/onnx__Asinh.html."""

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._types import FLOATS, Array


class Asinh(Operator):
    """The number whose hyperbolic sine is x."""

    since = 9
    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """arcsinh(x)."""
        return computed(np.arcsinh, x)
