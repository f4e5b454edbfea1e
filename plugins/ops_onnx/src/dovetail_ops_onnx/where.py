"""Where: https://onnx.ai/onnx/operators/onnx__Where.html."""

import numpy as np

from dovetail.op import Operator, TensorType
from dovetail_ops_onnx._elementwise import broadcast
from dovetail_ops_onnx._types import BASIC, BOOL, Array


class Where(Operator):
    """X where the condition is true, else Y."""

    since = 9
    inputs = ("condition: B", "X: T", "Y: T")
    outputs = ("output: T",)
    types = {"B": BOOL, "T": BASIC}
    in_place = True

    def infer(self, condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
        """The type of X in the shape that all three broadcast to."""
        return x.with_shape(broadcast(condition, x, y))

    def reference(self, condition: Array, x: Array, y: Array) -> Array:
        """x where condition, else y."""
        return np.asarray(np.where(condition, x, y)).astype(x.dtype, copy=False)
