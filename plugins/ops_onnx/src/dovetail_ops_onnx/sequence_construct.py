"""SequenceConstruct: https://onnx.ai/onnx/operators/onnx__SequenceConstruct.html."""

from dovetail.op import DType, SequenceType, TensorType
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import BASIC, Array


class SequenceConstruct(Movement):
    """A sequence of the inputs."""

    inputs = ("inputs*: T",)
    outputs = ("output_sequence",)
    since = 11
    types = {"T": BASIC - {DType.BFLOAT16}}

    def infer(self, *inputs: TensorType) -> TensorType:
        """A sequence of the inputs' data type."""
        return SequenceType(inputs[0].dtype, None)

    def reference(self, *inputs: Array) -> list[Array]:
        """The inputs as a list."""
        return list(inputs)
