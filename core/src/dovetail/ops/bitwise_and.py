"""BitwiseAnd: https://onnx.ai/onnx/operators/onnx__BitwiseAnd.html."""

import numpy as np

from dovetail.op import INTEGERS, Operator, TensorType
from dovetail.ops._elementwise import computed, same_type
from dovetail.ops._types import Array


class BitwiseAnd(Operator):
    """The bits of A and B."""

    since = 18
    inputs = ("A: T", "B: T")
    outputs = ("C: T",)
    types = {"T": INTEGERS}
    in_place = True

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        """The type of A in the shape that both broadcast to."""
        return same_type(a, b)

    def reference(self, a: Array, b: Array) -> Array:
        """a & b."""
        return computed(np.bitwise_and, a, b)
