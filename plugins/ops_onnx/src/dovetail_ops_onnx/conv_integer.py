"""ConvInteger: convolution of 8-bit integers with an int32 result. https://onnx.ai/onnx/operators/onnx__ConvInteger.html"""

from collections.abc import Sequence

from dovetail.op import DType, TensorType
from dovetail_ops_onnx._elementwise import scalar
from dovetail_ops_onnx._integer_convolution import IntegerConvolution
from dovetail_ops_onnx._quantize import EIGHT_BITS, check_channels, per_channel, shifted, wrapped
from dovetail_ops_onnx._types import Array, Types


class ConvInteger(IntegerConvolution):
    """y = (x - x_zero_point) convolved with (w - w_zero_point), in int32. Padding is x_zero_point."""

    since = 10
    inputs = ("x: T1", "w: T2", "x_zero_point?: T1", "w_zero_point?: T2")
    outputs = ("y: int32",)
    types = {"T1": EIGHT_BITS, "T2": EIGHT_BITS}

    def infer(
        self, x: TensorType, w: TensorType, x_zero_point: TensorType | None = None, w_zero_point: TensorType | None = None
    ) -> TensorType:
        if x_zero_point is not None:
            scalar(x_zero_point, "x_zero_point")
        result = self.conv().infer(x, w)
        check_channels(w_zero_point, "w_zero_point", w.dims[0])
        return result.with_dtype(DType.INT32)

    def reference(self, x: Array, w: Array, x_zero_point: Array | None = None, w_zero_point: Array | None = None) -> Array:
        zero = None if x_zero_point is None else x_zero_point.reshape(())
        own = None if w_zero_point is None else per_channel(w_zero_point, w.ndim)
        return wrapped(self.conv().reference(shifted(x, zero), shifted(w, own)))

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return self.conv().flops(inputs[:2], outputs)
