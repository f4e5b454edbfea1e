"""Atan: https://onnx.ai/onnx/operators/onnx__Atan.html."""

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._types import FLOATS, Array


class Atan(Operator):
    """The angle in radians, from -pi/2 to pi/2, whose tangent is x."""

    since = 7
    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """arctan(x)."""
        return computed(np.arctan, x)
