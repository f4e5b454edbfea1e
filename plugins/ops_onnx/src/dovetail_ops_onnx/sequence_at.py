"""SequenceAt: https://onnx.ai/onnx/operators/onnx__SequenceAt.html."""

from dovetail.op import TensorType
from dovetail_ops_onnx._sequence import position_in
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import INDICES, Array


class SequenceAt(Movement):
    """The element of a sequence at a position; negative positions count from the end."""

    inputs = ("input_sequence", "position: I")
    outputs = ("tensor",)
    since = 11
    types = {"I": INDICES}

    def infer(self, sequence: TensorType, _: TensorType) -> TensorType:
        """A tensor of the sequence's data type; its shape is known at run time."""
        return sequence.with_shape(None)

    def reference(self, sequence: list[Array], position: Array) -> Array:
        """The element."""
        return sequence[position_in(len(sequence), position)]
