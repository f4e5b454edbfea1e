"""Shape: https://onnx.ai/onnx/operators/onnx__Shape.html."""

import numpy as np

from dovetail.op import TensorType
from dovetail_ops_onnx._shapes import Movement, constant_type
from dovetail_ops_onnx._types import ALL, Array


class Shape(Movement):
    """The shape of the input, from axis `start` up to axis `end` (all by default), both limited to what there is."""

    inputs = ("data: T",)
    outputs = ("shape: int64",)
    types = {"T": ALL}

    start: int = 0
    end: int | None = None

    def infer(self, data: TensorType) -> TensorType:
        """A vector of int64, known while planning."""
        return constant_type(np.array(data.dims[self.start : self.end], np.int64))

    def reference(self, data: Array) -> Array:
        """The shape of data."""
        return np.array(data.shape[self.start : self.end], np.int64)
