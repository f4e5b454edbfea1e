"""Det: https://onnx.ai/onnx/operators/onnx__Det.html."""

import numpy as np

from dovetail.op import FLOATS, Operator, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import computed
from dovetail_ops_onnx._types import Array


class Det(Operator):
    """The determinant of each matrix of X [*, M, M]."""

    since = 11
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}

    def infer(self, x: TensorType) -> TensorType:
        """The leading dimensions."""
        if x.rank < 2 or x.dims[-1] != x.dims[-2]:
            raise ShapeError(f"the input is {x}; accepted: square matrices, [*, M, M]")
        return x.with_shape(x.dims[:-2])

    def reference(self, x: Array) -> Array:
        """By LU decomposition."""
        return computed(np.linalg.det, x)
