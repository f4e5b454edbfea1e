"""SequenceEmpty: https://onnx.ai/onnx/operators/onnx__SequenceEmpty.html."""

from dovetail.op import DType, SequenceType, TensorType
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import Array


class SequenceEmpty(Movement):
    """A sequence without elements, of the data type `dtype`."""

    inputs = ()
    outputs = ("output",)
    since = 11
    dtype: DType = DType.FLOAT32

    def infer(self) -> TensorType:
        """A sequence of `dtype`."""
        return SequenceType(self.dtype, None)

    def reference(self) -> list[Array]:
        """An empty list."""
        return []
