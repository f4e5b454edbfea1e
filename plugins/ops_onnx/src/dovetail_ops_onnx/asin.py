"""Asin: https://onnx.ai/onnx/operators/onnx__Asin.html."""

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._types import FLOATS, Array


class Asin(Operator):
    """The angle in radians, from -pi/2 to pi/2, whose sine is x."""

    since = 7
    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """arcsin(x)."""
        return computed(np.arcsin, x)
