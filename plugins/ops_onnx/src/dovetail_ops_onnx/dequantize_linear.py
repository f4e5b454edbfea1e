"""DequantizeLinear: few bits to floats by a scale and zero point. https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html"""

from collections.abc import Sequence

import numpy as np

from dovetail.op import DType, Operator, OperatorError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._quantize import QUANTIZED, SCALED, check_parameters, dtype_of, spread
from dovetail_ops_onnx._types import Array, Types


class DequantizeLinear(Operator):
    """y = (x - x_zero_point) * x_scale, of type `output_dtype`, by default that of x_scale. Computed in float32, rounded once."""

    since = 10
    inputs = ("x: T1", "x_scale: T2", "x_zero_point?: T1")
    outputs = ("y: T3",)
    types = {"T1": QUANTIZED | {DType.INT32}, "T2": SCALED | {DType.FLOAT8_E8M0}, "T3": SCALED}
    axis: int = 1
    block_size: int = 0
    output_dtype: int = 0

    def infer(self, x: TensorType, x_scale: TensorType, x_zero_point: TensorType | None = None) -> TensorType:
        check_parameters(x, x_scale, x_zero_point, self.axis, self.block_size)
        return x.with_dtype(self._target(x_scale.dtype))

    def reference(self, x: Array, x_scale: Array, x_zero_point: Array | None = None) -> Array:
        # float32 holds the differences of all types but int32.
        exact = np.int64 if x.dtype == np.int32 else np.float32
        whole = x.astype(exact)
        if x_zero_point is not None:
            whole = whole - spread(x_zero_point, x.shape, self.axis, self.block_size).astype(exact)
        scale = wide(spread(x_scale, x.shape, self.axis, self.block_size))
        with np.errstate(all="ignore"):
            return rounded(whole.astype(np.float32, copy=False) * scale, self._target(DType.of(x_scale.dtype)).numpy)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return 2 * outputs[0].size

    def _target(self, scale: DType) -> DType:
        target = dtype_of(self.output_dtype, "output_dtype", SCALED) or scale
        if target not in SCALED:
            raise OperatorError(
                f"x_scale is {scale} and output_dtype is not given; accepted: output_dtype with a scale of that type"
            )
        return target
