"""MatMulInteger: matrix product of 8-bit integers with an int32 result. https://onnx.ai/onnx/operators/onnx__MatMulInteger.html"""

from collections.abc import Sequence

import numpy as np

from dovetail.op import DType, Operator, TensorType
from dovetail_ops_onnx._quantize import EIGHT_BITS, check_lines, per_row, shifted, wrapped
from dovetail_ops_onnx._types import Array, Types
from dovetail_ops_onnx.mat_mul import MatMul

_PRODUCT = MatMul()
"""One for all: this is asked several times for each node and plan."""


class MatMulInteger(Operator):
    """Y = (A - a_zero_point) @ (B - b_zero_point) in int32, which wraps.

    Zero points: one; for A one for each row, [M] or [..., M, 1]; for B one for each column, [N] or [..., 1, N].
    """

    since = 10
    inputs = ("A: T1", "B: T2", "a_zero_point?: T1", "b_zero_point?: T2")
    outputs = ("Y: int32",)
    types = {"T1": EIGHT_BITS, "T2": EIGHT_BITS}

    def infer(
        self, A: TensorType, B: TensorType, a_zero_point: TensorType | None = None, b_zero_point: TensorType | None = None
    ) -> TensorType:
        check_lines(a_zero_point, "a_zero_point", A, -2)
        check_lines(b_zero_point, "b_zero_point", B, -1)
        return _PRODUCT.infer(A, B).with_dtype(DType.INT32)

    def reference(self, A: Array, B: Array, a_zero_point: Array | None = None, b_zero_point: Array | None = None) -> Array:
        own = None if a_zero_point is None else per_row(a_zero_point)
        terms = A.shape[-1]
        return wrapped(np.matmul(shifted(A, own, terms), shifted(B, b_zero_point, terms)))

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return _PRODUCT.flops(inputs, outputs)
