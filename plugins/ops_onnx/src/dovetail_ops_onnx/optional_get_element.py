"""OptionalGetElement: https://onnx.ai/onnx/operators/onnx__OptionalGetElement.html."""

from typing import Any

from dovetail.op import OperatorError, OptionalType, TensorType
from dovetail_ops_onnx._shapes import Movement


class OptionalGetElement(Movement):
    """The content of an optional; other values as they are."""

    inputs = ("input",)
    outputs = ("output",)
    since = 15

    def infer(self, given: TensorType) -> TensorType:
        """The type of the input; open for an optional."""
        return given.with_shape(None) if isinstance(given, OptionalType) else given

    def reference(self, given: Any) -> Any:
        """The value."""
        if given is None:
            raise OperatorError("the optional is absent", hint="ask OptionalHasElement first")
        return given
