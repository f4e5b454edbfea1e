"""BitwiseOr: https://onnx.ai/onnx/operators/onnx__BitwiseOr.html."""

import numpy as np

from dovetail.op import INTEGERS
from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._pairs import Arithmetic
from dovetail_ops_onnx._types import Array


class BitwiseOr(Arithmetic):
    """The bits of A or B."""

    since = 18
    types = {"T": INTEGERS}

    def reference(self, a: Array, b: Array) -> Array:
        """a | b."""
        return computed(np.bitwise_or, a, b)
