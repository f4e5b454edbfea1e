"""BitwiseNot: https://onnx.ai/onnx/operators/onnx__BitwiseNot.html."""

import numpy as np

from dovetail.op import INTEGERS, Operator
from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._types import Array


class BitwiseNot(Operator):
    """Every bit turned over."""

    since = 18
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": INTEGERS}
    in_place = True

    def reference(self, x: Array) -> Array:
        """~x."""
        return computed(np.bitwise_not, x)
