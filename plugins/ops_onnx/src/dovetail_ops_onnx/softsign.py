"""Softsign: https://onnx.ai/onnx/operators/onnx__Softsign.html."""

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._types import FLOATS, Array


class Softsign(Operator):
    """x / (1 + |x|)."""

    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """x / (1 + |x|)."""
        return computed(lambda v: v / (1 + np.abs(v)), x)
