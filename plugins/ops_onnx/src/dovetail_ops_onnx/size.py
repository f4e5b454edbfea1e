"""Size: https://onnx.ai/onnx/operators/onnx__Size.html."""

import numpy as np

from dovetail.op import ShapeError, TensorType
from dovetail_ops_onnx._shapes import Movement, constant_type
from dovetail_ops_onnx._types import ALL, Array


class Size(Movement):
    """The number of elements."""

    inputs = ("data: T",)
    outputs = ("size: int64",)
    types = {"T": ALL}

    def infer(self, data: TensorType) -> TensorType:
        """A scalar of int64, known while planning."""
        if data.size > np.iinfo(np.int64).max:
            raise ShapeError(f"the input is {data}; accepted: at most 2^63 - 1 elements")
        return constant_type(np.array(data.size, np.int64))

    def reference(self, data: Array) -> Array:
        """The size of data."""
        return np.array(data.size, np.int64)
