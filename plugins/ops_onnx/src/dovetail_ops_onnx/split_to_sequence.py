"""SplitToSequence: https://onnx.ai/onnx/operators/onnx__SplitToSequence.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import OperatorError, SequenceType, TensorType
from dovetail_ops_onnx._shapes import Movement, check_axis
from dovetail_ops_onnx._types import BASIC, INDICES, Array


class SplitToSequence(Movement):
    """A sequence of the parts of a tensor along an axis.

    `split` is the length of every part (the last may be shorter), or a vector with the length of each; without it the parts
    have length 1, and `keepdims` 0 drops the axis. So it does, as in onnxruntime, for a single length of 1: PyTorch's exporter
    writes `unbind` like that, although `keepdims` should count for nothing beside `split`.
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

    def drops_axis(self, split: Sequence[Array | None]) -> bool:
        """Whether the parts have length 1 and lack the axis, with this `split`, if any."""
        length = next(iter(split), None)
        return not self.keepdims and (length is None or (length.ndim == 0 and int(length) == 1))

    def reference(self, given: Array, split: Array | None = None) -> list[Array]:
        """Views of the input."""
        axis = check_axis(self.axis, given.ndim)
        length = given.shape[axis]
        if self.drops_axis([split]):
            return list(np.moveaxis(given, axis, 0))
        if split is None:
            return np.split(given, range(1, length), axis) if length else []
        ends = np.cumsum(split) if split.ndim else np.append(np.arange(int(split), length, max(1, int(split))), length)
        if np.any(split < (split.ndim == 0)) or (split.ndim and int(np.sum(split)) != length):
            raise OperatorError(f"split is {split.tolist()}; the axis has length {length}")
        return np.split(given, ends[:-1], axis)
