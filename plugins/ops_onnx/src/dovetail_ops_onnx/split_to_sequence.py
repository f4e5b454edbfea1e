"""SplitToSequence: https://onnx.ai/onnx/operators/onnx__SplitToSequence.html."""

import numpy as np

from dovetail.op import OperatorError, SequenceType, TensorType
from dovetail_ops_onnx._shapes import Movement, check_axis
from dovetail_ops_onnx._types import BASIC, INDICES, Array


class SplitToSequence(Movement):
    """A sequence of the parts of a tensor along an axis.

    `split` is the length of every part (the last may be shorter), or a vector with the length of each; without it the parts
    have length 1, and `keepdims` 0 drops the axis.
    """

    inputs = ("input: T", "split?: I")
    outputs = ("output_sequence",)
    since = 11
    types = {"T": BASIC, "I": INDICES}
    axis: int = 0
    keepdims: int = 1

    def infer(self, given: TensorType, _: TensorType | None = None) -> TensorType:
        """A sequence of the input's data type."""
        return SequenceType(given.dtype, None)

    def reference(self, given: Array, split: Array | None = None) -> list[Array]:
        """Views of the input."""
        axis = check_axis(self.axis, given.ndim)
        length = given.shape[axis]
        if split is None:
            parts = np.split(given, range(1, length), axis) if length else []
            return parts if self.keepdims else [np.squeeze(part, axis) for part in parts]
        ends = np.cumsum(split) if split.ndim else np.append(np.arange(int(split), length, max(1, int(split))), length)
        if np.any(split < (split.ndim == 0)) or (split.ndim and int(np.sum(split)) != length):
            raise OperatorError(f"split is {split.tolist()}; the axis has length {length}")
        return np.split(given, ends[:-1], axis)
