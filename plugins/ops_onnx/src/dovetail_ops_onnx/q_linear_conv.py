"""QLinearConv: convolution from quantized to quantized values. https://onnx.ai/onnx/operators/onnx__QLinearConv.html"""

from collections.abc import Sequence

import numpy as np

from dovetail.op import DType, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import scalar
from dovetail_ops_onnx._integer_convolution import IntegerConvolution
from dovetail_ops_onnx._quantize import EIGHT_BITS, check_channels, per_channel, requantized, shifted
from dovetail_ops_onnx._types import Array, Types


class QLinearConv(IntegerConvolution):
    """y = saturate(round(sum * x_scale * w_scale / y_scale) + y_zero_point), halves to even.

    sum is the convolution of (x - x_zero_point) with (w - w_zero_point) plus B [M], exact, in units of x_scale * w_scale.
    Scale and zero point of the weights are one, or one for each output channel. Padding is x_zero_point.
    """

    since = 10
    inputs = (
        "x: T1",
        "x_scale: float32",
        "x_zero_point: T1",
        "w: T2",
        "w_scale: float32",
        "w_zero_point: T2",
        "y_scale: float32",
        "y_zero_point: T3",
        "B?: T4",
    )
    outputs = ("y: T3",)
    types = {"T1": EIGHT_BITS, "T2": EIGHT_BITS, "T3": EIGHT_BITS, "T4": frozenset({DType.INT32})}

    def infer(
        self,
        x: TensorType,
        x_scale: TensorType,
        x_zero_point: TensorType,
        w: TensorType,
        w_scale: TensorType,
        w_zero_point: TensorType,
        y_scale: TensorType,
        y_zero_point: TensorType,
        B: TensorType | None = None,
    ) -> TensorType:
        for name, given in (("x_scale", x_scale), ("x_zero_point", x_zero_point), ("y_scale", y_scale)):
            scalar(given, name)
        scalar(y_zero_point, "y_zero_point")
        result = self.conv().infer(x, w)
        check_channels(w_scale, "w_scale", w.dims[0])
        check_channels(w_zero_point, "w_zero_point", w.dims[0])
        if B is not None and B.dims != w.dims[:1]:
            raise ShapeError(f"the bias B is {B}; accepted: [{w.dims[0]}], one for each output channel")
        return result.with_dtype(y_zero_point.dtype)

    def reference(
        self,
        x: Array,
        x_scale: Array,
        x_zero_point: Array,
        w: Array,
        w_scale: Array,
        w_zero_point: Array,
        y_scale: Array,
        y_zero_point: Array,
        B: Array | None = None,
    ) -> Array:
        left, right = shifted(x, x_zero_point.reshape(())), shifted(w, per_channel(w_zero_point, w.ndim))
        total = self.conv().reference(left, right, None if B is None else B.astype(np.float64))
        unit = x_scale.reshape(()).astype(np.float64) * w_scale.astype(np.float64)
        return requantized(total * per_channel(unit, w.ndim - 1), y_scale.reshape(()), y_zero_point.reshape(()))

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        bias = inputs[8] if len(inputs) > 8 else None
        return self.conv().flops((inputs[0], inputs[3], bias), outputs)
