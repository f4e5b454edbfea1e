"""And: https://onnx.ai/onnx/operators/onnx__And.html."""

import numpy as np

from dovetail.op import DType, Operator, TensorType
from dovetail.ops._elementwise import broadcast, computed
from dovetail.ops._types import BOOL, Array


class And(Operator):
    """Logical and."""

    since = 7
    inputs = ("A: T", "B: T")
    outputs = ("C: T1",)
    types = {"T": BOOL, "T1": BOOL}
    in_place = True

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        """Bools in the shape that both broadcast to."""
        return TensorType(DType.BOOL, broadcast(a, b))

    def reference(self, a: Array, b: Array) -> Array:
        """a and b."""
        return computed(np.logical_and, a, b, dtype=np.bool_)
