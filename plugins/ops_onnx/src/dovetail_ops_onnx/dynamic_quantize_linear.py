"""DynamicQuantizeLinear: to uint8 over the tensor's own range. https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.op import DType, Operator, TensorType
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array, Types


class DynamicQuantizeLinear(Operator):
    """y = saturate(round(x / y_scale) + y_zero_point), with the range of x, 0 included, spread over 0 to 255.

    All in float32, halves to even. A tensor without elements or of zeros has the scale 1 / 255.
    """

    since = 11
    inputs = ("x: T1",)
    outputs = ("y: T2", "y_scale: float32", "y_zero_point: T2")
    types = {"T1": frozenset({DType.FLOAT32}), "T2": frozenset({DType.UINT8})}

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        return x.with_dtype(DType.UINT8), TensorType(DType.FLOAT32, ()), TensorType(DType.UINT8, ())

    def reference(self, x: Array) -> tuple[Array, Array, Array]:
        with np.errstate(all="ignore"):
            high, low = np.max(x, initial=np.float32(0)), np.min(x, initial=np.float32(0))
            scale = np.float32(1 if high == low else high - low) / np.float32(255)
            zero: Any = np.rint(np.clip(-low / scale, 0, 255))
            y = np.clip(np.rint(x / scale) + zero, 0, 255)
            return rounded(y, np.dtype(np.uint8)), np.asarray(scale, np.float32), rounded(zero, np.dtype(np.uint8))

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return 5 * outputs[0].size
