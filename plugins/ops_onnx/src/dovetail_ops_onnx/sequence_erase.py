"""SequenceErase: https://onnx.ai/onnx/operators/onnx__SequenceErase.html."""

import numpy as np

from dovetail.op import TensorType
from dovetail_ops_onnx._sequence import position_in
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import INDICES, Array


class SequenceErase(Movement):
    """The sequence without the element at a position, the last by default."""

    inputs = ("input_sequence", "position?: I")
    outputs = ("output_sequence",)
    since = 11
    types = {"I": INDICES}

    def infer(self, sequence: TensorType, _: TensorType | None = None) -> TensorType:
        """A sequence of the same data type."""
        return sequence

    def reference(self, sequence: list[Array], position: Array | None = None) -> list[Array]:
        """A new list."""
        at = position_in(len(sequence), np.array(-1) if position is None else position)
        return [*sequence[:at], *sequence[at + 1 :]]
