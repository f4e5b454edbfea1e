"""BitCast: https://onnx.ai/onnx/operators/onnx__BitCast.html."""

import re

from dovetail.op import DType, OperatorError, TensorType
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import ALL, Array

_TYPES = ALL - {DType.STRING}


class BitCast(Movement):
    """The bytes of the input read as another type of the same width."""

    since = 26
    inputs = ("input: T1",)
    outputs = ("output: T2",)
    types = {"T1": _TYPES, "T2": _TYPES}

    to: DType

    def infer(self, x: TensorType) -> TensorType:
        """The input's shape with the type `to`. Raises `OperatorError` for a type of another width."""
        if self.to not in _TYPES or _bits(self.to) != _bits(x.dtype):
            raise OperatorError(
                f"attribute 'to' is {self.to}; accepted: a type of {_bits(x.dtype)} bits, as the input's {x.dtype}"
            )
        return x.with_dtype(self.to)

    def reference(self, x: Array) -> Array:
        """The same bytes."""
        return x.copy().view(self.to.numpy)


def _bits(dtype: DType) -> int:
    """The width of an element as ONNX counts it: narrow types take a byte each here."""
    width = re.match("(?:u?int|float)([24])(?![0-9])", dtype.value)
    return int(width[1]) if width else 8 * dtype.itemsize
