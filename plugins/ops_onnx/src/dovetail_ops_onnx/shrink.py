"""Shrink: https://onnx.ai/onnx/operators/onnx__Shrink.html."""

import numpy as np

from dovetail.op import NUMERIC, DType
from dovetail_ops_onnx._elementwise import Function
from dovetail_ops_onnx._types import Array


class Shrink(Function):
    """x + bias below -lambd, x - bias above lambd, else 0."""

    since = 9
    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": NUMERIC - {DType.BFLOAT16}}
    bias: float = 0.0
    lambd: float = 0.5

    def function(self, x: Array) -> Array:
        """The shrunk values; integers are computed in float64 and truncated, NaN becomes 0."""
        v = x if x.dtype.kind == "f" else x.astype(np.float64)
        return np.where(v < -self.lambd, v + self.bias, np.where(v > self.lambd, v - self.bias, np.zeros_like(v)))
