"""Acos: https://onnx.ai/onnx/operators/onnx__Acos.html."""

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._types import FLOATS, Array


class Acos(Operator):
    """The angle in radians, from 0 to pi, whose cosine is x."""

    since = 7
    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """arccos(x)."""
        return computed(np.arccos, x)
