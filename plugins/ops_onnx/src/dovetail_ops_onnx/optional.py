"""Optional: https://onnx.ai/onnx/operators/onnx__Optional.html."""

from typing import Any

from dovetail.op import DType, OptionalType, TensorType
from dovetail_ops_onnx._shapes import Movement


class Optional(Movement):
    """The input as a value that might be absent; without an input an absent one, of the type that `type` describes."""

    inputs = ("input?",)
    outputs = ("output",)
    since = 15
    type: str = ""

    def infer(self, given: TensorType | None = None) -> TensorType:
        """An optional."""
        return OptionalType(DType.FLOAT32 if given is None else given.dtype, None)

    def reference(self, given: Any = None) -> Any:
        """The input, or None."""
        return given
