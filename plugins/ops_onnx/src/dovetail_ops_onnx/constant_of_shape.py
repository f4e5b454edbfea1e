"""ConstantOfShape: https://onnx.ai/onnx/operators/onnx__ConstantOfShape.html."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, OperatorError, TensorType
from dovetail_ops_onnx._shapes import Movement, check_dims, ints, known_ints
from dovetail_ops_onnx._types import ALL, Array

_VALUES = ALL - {DType.STRING, DType.COMPLEX64, DType.COMPLEX128}


class ConstantOfShape(Movement):
    """A tensor of the given shape, filled with the one element of `value`, which is a float32 0 when left out."""

    since = 9
    inputs = ("input: int64",)
    outputs = ("output: T2",)
    types = {"T2": _VALUES}

    value: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        if self.value is not None and self.value.size != 1:
            raise OperatorError(f"attribute 'value' has {self.value.size} elements; accepted: 1")

    def infer(self, shape: TensorType) -> TensorType:
        """The type of `value` in the shape, which must be known."""
        dtype = DType.FLOAT32 if self.value is None else DType.of(self.value.dtype)
        return TensorType(dtype, check_dims(known_ints(shape, "input"), "input 'input'"))

    def reference(self, shape: Array) -> Array:
        """A new array filled with the value."""
        dims = check_dims(ints(shape, "input"), "input 'input'")
        return np.zeros(dims, np.float32) if self.value is None else np.full(dims, self.value.reshape(()), self.value.dtype)
