"""Not: https://onnx.ai/onnx/operators/onnx__Not.html."""

import numpy as np

from dovetail.op import Operator
from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._types import BOOL, Array


class Not(Operator):
    """Logical negation."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": BOOL}
    in_place = True

    def reference(self, x: Array) -> Array:
        """True where x is False."""
        return computed(np.logical_not, x)
