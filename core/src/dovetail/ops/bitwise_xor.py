"""BitwiseXor: https://onnx.ai/onnx/operators/onnx__BitwiseXor.html."""

import numpy as np

from dovetail.op import INTEGERS
from dovetail.ops._elementwise import computed
from dovetail.ops._pairs import Arithmetic
from dovetail.ops._types import Array


class BitwiseXor(Arithmetic):
    """The bits of A xor B."""

    since = 18
    types = {"T": INTEGERS}

    def reference(self, a: Array, b: Array) -> Array:
        """a ^ b."""
        return computed(np.bitwise_xor, a, b)
