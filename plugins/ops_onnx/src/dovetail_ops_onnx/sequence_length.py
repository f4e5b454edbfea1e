"""SequenceLength: https://onnx.ai/onnx/operators/onnx__SequenceLength.html."""

import numpy as np

from dovetail.op import DType, TensorType
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import Array


class SequenceLength(Movement):
    """The number of elements of a sequence, as an int64 scalar."""

    inputs = ("input_sequence",)
    outputs = ("length",)
    since = 11

    def infer(self, _: TensorType) -> TensorType:
        """A scalar of int64."""
        return TensorType(DType.INT64, ())

    def reference(self, sequence: list[Array]) -> Array:
        """The length."""
        return np.array(len(sequence), np.int64)
