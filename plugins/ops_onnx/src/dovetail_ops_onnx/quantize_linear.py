"""QuantizeLinear: floats to few bits by a scale and zero point. https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html"""

from collections.abc import Sequence

import numpy as np

from dovetail.op import DType, Operator, OperatorError, TensorType
from dovetail_ops_onnx._casts import cast
from dovetail_ops_onnx._elementwise import finite_range, wide
from dovetail_ops_onnx._quantize import QUANTIZED, SCALED, check_parameters, dtype_of, spread
from dovetail_ops_onnx._types import Array, Types


class QuantizeLinear(Operator):
    """y = saturate(round(x / y_scale) + y_zero_point), halves to even; to floats without the rounding.

    The quotient is rounded to `precision`, by default the type of y_scale (float32 where that is not a float to compute in).
    The type of y is that of the zero point, else `output_dtype`, else uint8.
    """

    since = 10
    inputs = ("x: T1", "y_scale: T2", "y_zero_point?: T3")
    outputs = ("y: T3",)
    types = {
        "T1": SCALED | {DType.INT32},
        "T2": SCALED | {DType.INT32, DType.FLOAT8_E8M0},
        "T3": QUANTIZED,
    }
    axis: int = 1
    block_size: int = 0
    output_dtype: int = 0
    precision: int = 0
    saturate: bool = True

    def infer(self, x: TensorType, y_scale: TensorType, y_zero_point: TensorType | None = None) -> TensorType:
        check_parameters(x, y_scale, y_zero_point, self.axis, self.block_size)
        dtype_of(self.precision, "precision", SCALED)
        wanted = dtype_of(self.output_dtype, "output_dtype", QUANTIZED)
        given = None if y_zero_point is None else y_zero_point.dtype
        if wanted and given and wanted is not given:
            raise OperatorError(f"output_dtype is {wanted}, the zero point {given}; accepted: the same type")
        return x.with_dtype(given or wanted or DType.UINT8)

    def reference(self, x: Array, y_scale: Array, y_zero_point: Array | None = None) -> Array:
        scale = spread(y_scale, x.shape, self.axis, self.block_size)
        if y_zero_point is None:
            target, zero = dtype_of(self.output_dtype, "output_dtype", QUANTIZED) or DType.UINT8, np.zeros((), np.float32)
        else:
            target = DType.of(y_zero_point.dtype)
            # Sums with whole numbers of up to 16 bits are exact in float32 wherever they are in range.
            exact = np.float32 if target.is_integer else np.float64
            zero = spread(y_zero_point, x.shape, self.axis, self.block_size).astype(exact)
        own = DType.of(y_scale.dtype)
        precision = dtype_of(self.precision, "precision", SCALED) or (own if own in SCALED else DType.FLOAT32)
        with np.errstate(all="ignore"):
            left, right = (wide(a.astype(precision.numpy, copy=False)) for a in (x, scale))
            quotient = wide(np.asarray(left / right).astype(precision.numpy, copy=False))
            if target.is_integer:
                low, high = finite_range(target.numpy)
                return cast(np.clip(np.rint(quotient) + zero, low, high), target)
            return cast((quotient + zero).astype(np.float32), target, saturate=self.saturate)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return 3 * outputs[0].size
