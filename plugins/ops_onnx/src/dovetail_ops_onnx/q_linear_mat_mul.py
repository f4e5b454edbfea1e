"""QLinearMatMul: matrix product from quantized to quantized values. https://onnx.ai/onnx/operators/onnx__QLinearMatMul.html"""

from collections.abc import Sequence

import numpy as np

from dovetail.op import Operator, TensorType
from dovetail_ops_onnx._quantize import EIGHT_BITS, FLOAT8, SCALED, check_lines, per_row, requantized, shifted
from dovetail_ops_onnx._types import Array, Types
from dovetail_ops_onnx.mat_mul import MatMul

_SMALL = EIGHT_BITS | FLOAT8


class QLinearMatMul(Operator):
    """y = saturate(round(sum * a_scale * b_scale / y_scale) + y_zero_point), halves to even; floats without the rounding.

    sum is (a - a_zero_point) @ (b - b_zero_point), exact. Parameters: one; for a and y one for each row, [M] or [..., M, 1];
    for b one for each column, [N] or [..., 1, N].
    """

    since = 10
    inputs = (
        "a: T1",
        "a_scale: TS",
        "a_zero_point: T1",
        "b: T2",
        "b_scale: TS",
        "b_zero_point: T2",
        "y_scale: TS",
        "y_zero_point: T3",
    )
    outputs = ("y: T3",)
    types = {"TS": SCALED, "T1": _SMALL, "T2": _SMALL, "T3": _SMALL}

    def infer(
        self,
        a: TensorType,
        a_scale: TensorType,
        a_zero_point: TensorType,
        b: TensorType,
        b_scale: TensorType,
        b_zero_point: TensorType,
        y_scale: TensorType,
        y_zero_point: TensorType,
    ) -> TensorType:
        result = MatMul().infer(a, b)
        matrix = result if a.rank > 1 and b.rank > 1 else result.with_shape(())
        left, right = (t if matrix is result else matrix for t in (a, b))
        for name, given in (("a_scale", a_scale), ("a_zero_point", a_zero_point)):
            check_lines(given, name, left, -2)
        for name, given in (("b_scale", b_scale), ("b_zero_point", b_zero_point)):
            check_lines(given, name, right, -1)
        for name, given in (("y_scale", y_scale), ("y_zero_point", y_zero_point)):
            check_lines(given, name, matrix, -2)
        return result.with_dtype(y_zero_point.dtype)

    def reference(
        self,
        a: Array,
        a_scale: Array,
        a_zero_point: Array,
        b: Array,
        b_scale: Array,
        b_zero_point: Array,
        y_scale: Array,
        y_zero_point: Array,
    ) -> Array:
        with np.errstate(all="ignore"):
            total = np.matmul(shifted(a, per_row(a_zero_point)), shifted(b, b_zero_point))
            real = total * (_row_scale(a_scale) * b_scale.astype(np.float64))
        return requantized(real.reshape(total.shape), _row_scale(y_scale), per_row(y_zero_point))

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return MatMul().flops((inputs[0], inputs[3]), outputs)


def _row_scale(scale: Array) -> Array:
    found = per_row(scale).astype(np.float64)
    return found.reshape(()) if found.size == 1 else found
