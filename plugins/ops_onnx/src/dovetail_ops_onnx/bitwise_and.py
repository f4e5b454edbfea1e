"""BitwiseAnd: https://onnx.ai/onnx/operators/onnx__BitwiseAnd.html."""

import numpy as np

from dovetail.op import INTEGERS
from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._pairs import Arithmetic
from dovetail_ops_onnx._types import Array


class BitwiseAnd(Arithmetic):
    """The bits of A and B."""

    since = 18
    types = {"T": INTEGERS}

    def reference(self, a: Array, b: Array) -> Array:
        """a & b."""
        return computed(np.bitwise_and, a, b)
