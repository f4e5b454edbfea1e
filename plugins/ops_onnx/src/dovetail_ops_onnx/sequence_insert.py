"""SequenceInsert: https://onnx.ai/onnx/operators/onnx__SequenceInsert.html."""

from dovetail.op import DType, OperatorError, SequenceType, TensorType
from dovetail_ops_onnx._sequence import position_in
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import BASIC, INDICES, Array


class SequenceInsert(Movement):
    """The sequence with a tensor put before a position, at the end by default."""

    inputs = ("input_sequence", "tensor: T", "position?: I")
    outputs = ("output_sequence",)
    since = 11
    types = {"T": BASIC - {DType.BFLOAT16}, "I": INDICES}

    def infer(self, _: TensorType, tensor: TensorType, __: TensorType | None = None) -> TensorType:
        """A sequence of the tensor's data type."""
        return SequenceType(tensor.dtype, None)

    def reference(self, sequence: list[Array], tensor: Array, position: Array | None = None) -> list[Array]:
        """A new list."""
        if sequence and sequence[0].dtype != tensor.dtype:
            raise OperatorError(f"the tensor is {tensor.dtype}, the sequence has {sequence[0].dtype}; they must be the same")
        at = len(sequence) if position is None else position_in(len(sequence), position, past=1)
        return [*sequence[:at], tensor, *sequence[at:]]
