"""StringConcat: https://onnx.ai/onnx/operators/onnx__StringConcat.html."""

import numpy as np

from dovetail.op import DType, Operator, TensorType
from dovetail_ops_onnx._elementwise import same_type
from dovetail_ops_onnx._strings import in_parts
from dovetail_ops_onnx._types import Array


class StringConcat(Operator):
    """The strings of X, each followed by that of Y, with broadcasting."""

    since = 20
    inputs = ("X: T", "Y: T")
    outputs = ("Z: T",)
    types = {"T": frozenset({DType.STRING})}

    def infer(self, X: TensorType, Y: TensorType) -> TensorType:
        """The shape that both broadcast to."""
        return same_type(X, Y)

    def reference(self, X: Array, Y: Array) -> Array:
        """X + Y."""
        found = np.empty(np.broadcast_shapes(X.shape, Y.shape), object)
        in_parts(lambda dst, x, y: np.add(x, y, out=dst), found, *np.broadcast_arrays(X, Y))
        return found
