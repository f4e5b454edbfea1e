"""ConcatFromSequence: https://onnx.ai/onnx/operators/onnx__ConcatFromSequence.html."""

import numpy as np

from dovetail.op import OperatorError, TensorType
from dovetail_ops_onnx._shapes import Movement, check_axis
from dovetail_ops_onnx._types import Array


class ConcatFromSequence(Movement):
    """The elements of a sequence joined along an axis, a new one with `new_axis` 1."""

    inputs = ("input_sequence",)
    outputs = ("concat_result",)
    since = 11
    axis: int
    new_axis: int = 0

    def infer(self, sequence: TensorType) -> TensorType:
        """A tensor of the sequence's data type; its shape is known at run time."""
        return sequence.with_shape(None)

    def reference(self, sequence: list[Array]) -> Array:
        """A new array."""
        if not sequence:
            raise OperatorError("the sequence is empty; accepted: at least one element")
        axis = check_axis(self.axis, sequence[0].ndim + bool(self.new_axis))
        return np.stack(sequence, axis) if self.new_axis else np.concatenate(sequence, axis)
