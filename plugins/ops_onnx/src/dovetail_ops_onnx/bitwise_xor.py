"""BitwiseXor: https://onnx.ai/onnx/operators/onnx__BitwiseXor.html."""

import numpy as np

from dovetail.op import INTEGERS
from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._pairs import Arithmetic
from dovetail_ops_onnx._types import Array


class BitwiseXor(Arithmetic):
    """The bits of A xor B."""

    since = 18
    types = {"T": INTEGERS}

    def reference(self, a: Array, b: Array) -> Array:
        """a ^ b."""
        return computed(np.bitwise_xor, a, b)
