"""Acosh: https://onnx.ai/onnx/operators/onnx__Acosh.html."""

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._types import FLOATS, Array


class Acosh(Operator):
    """The number of 0 or more whose hyperbolic cosine is x."""

    since = 9
    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """arccosh(x)."""
        return computed(np.arccosh, x)
