"""OptionalHasElement: https://onnx.ai/onnx/operators/onnx__OptionalHasElement.html."""

from typing import Any

import numpy as np

from dovetail.op import DType, OptionalType, TensorType
from dovetail_ops_onnx._shapes import Movement, constant_type
from dovetail_ops_onnx._types import Array


class OptionalHasElement(Movement):
    """Whether an optional is there; False when the input is left out, True for every other value."""

    inputs = ("input?",)
    outputs = ("output",)
    since = 15

    def infer(self, given: TensorType | None = None) -> TensorType:
        """A bool scalar."""
        return TensorType(DType.BOOL, ()) if isinstance(given, OptionalType) else constant_type(self.reference(given))

    def reference(self, given: Any = None) -> Array:
        """A bool scalar."""
        return np.array(given is not None)
