"""Gemm: general matrix multiplication. https://onnx.ai/onnx/operators/onnx__Gemm.html"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.op import FLOATS, DType, Operator, ShapeError, TensorType
from dovetail_ops_onnx._axes import require_broadcast
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import is_float, rounded
from dovetail_ops_onnx._types import Array, Types


class Gemm(Operator):
    """Y [M, N] = alpha * A' * B' + beta * C, A' [M, K] and B' [K, N] being A and B, transposed on request; C broadcasts.

    With beta = 0, C is not read, as in BLAS: its NaN and infinities have no effect.
    Integers: the product wraps; scaling by alpha and beta other than 1 is computed in float64 and cut off.
    """

    since = 7
    inputs = ("A: T", "B: T", "C?: T")
    outputs = ("Y: T",)
    propagates_nan = True
    magnitude = "sum_of_products"
    types = {"T": FLOATS | {DType.INT32, DType.INT64, DType.UINT32, DType.UINT64}}
    alpha: float = 1.0
    beta: float = 1.0
    transA: bool = False
    transB: bool = False

    def sizes(self, A: TensorType, B: TensorType) -> tuple[int, int, int]:
        """M, N and K for these types. Raises `ShapeError` for types that do not fit."""
        if A.rank != 2 or B.rank != 2:
            raise ShapeError(f"A is {A}, B is {B}; accepted: two matrices")
        m, k = A.dims[::-1] if self.transA else A.dims
        k_b, n = B.dims[::-1] if self.transB else B.dims
        if k != k_b:
            raise ShapeError(
                f"A is {A}, B is {B}, transA {self.transA:d}, transB {self.transB:d}: the inner sizes {k}, {k_b} differ"
            )
        return m, n, k

    def infer(self, A: TensorType, B: TensorType, C: TensorType | None = None) -> TensorType:
        m, n, _ = self.sizes(A, B)
        if C is not None:
            require_broadcast("C", C.dims, (m, n))
        return A.with_shape((m, n))

    def reference(self, A: Array, B: Array, C: Array | None = None) -> Array:
        left, right = wide(A.T if self.transA else A), wide(B.T if self.transB else B)
        with np.errstate(all="ignore"):
            y = _scaled(np.matmul(left, right), self.alpha)
            if C is not None and self.beta:
                y = y + _scaled(wide(C), self.beta)
        return rounded(y, A.dtype)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        a, _, c = (*inputs, None)[:3]
        assert a is not None
        k = a.dims[0] if self.transA else a.dims[1]
        return outputs[0].size * (2 * k + (c is not None))


def _scaled(x: Array, factor: float) -> Any:
    if factor == 1:
        return x
    return x * np.asarray(factor, x.dtype if is_float(x) else np.float64)
