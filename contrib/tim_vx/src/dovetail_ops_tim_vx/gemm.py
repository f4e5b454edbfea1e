"""Gemm of TIM-VX's example of a customized operator: a matrix product with transposes, one matrix or a batch of them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import FLOATS, OpenCLKernel, Operator, ShapeError, TensorType
from dovetail_ops_tim_vx._base import TimVxOperator

SOURCE = """
// Y [batch, M, N] = A' [batch, M, K] * B' [batch, K, N], row-major; A' and B' are A and B, transposed where TRANS_A, TRANS_B.
// One work item for each element of Y. A_STEP and B_STEP are the elements from one matrix to the next, 0 for a single one.
// Sums are in float, in the order of k.
#ifndef M
#define M 1
#define N 1
#define K 1
#define TRANS_A 0
#define TRANS_B 0
#define A_STEP 0
#define B_STEP 0
#endif

#define A_INDEX(m, k) (TRANS_A ? (k) * M + (m) : (m) * K + (k))
#define B_INDEX(k, n) (TRANS_B ? (n) * K + (k) : (k) * N + (n))

__kernel void gemm_F32(__global const float *a, __global const float *b, __global float *y)
{
    const int n = get_global_id(0), m = get_global_id(1), batch = get_global_id(2);
    a += (size_t)batch * A_STEP;
    b += (size_t)batch * B_STEP;
    float sum = 0.0f;
    for (int k = 0; k < K; k++)
        sum += a[A_INDEX(m, k)] * b[B_INDEX(k, n)];
    y[((size_t)batch * M + m) * N + n] = sum;
}

// vload_half and vstore_half belong to OpenCL's core, so this needs no cl_khr_fp16.
__kernel void gemm_F16(__global const half *a, __global const half *b, __global half *y)
{
    const int n = get_global_id(0), m = get_global_id(1), batch = get_global_id(2);
    a += (size_t)batch * A_STEP;
    b += (size_t)batch * B_STEP;
    float sum = 0.0f;
    for (int k = 0; k < K; k++)
        sum += vload_half(A_INDEX(m, k), a) * vload_half(B_INDEX(k, n), b);
    vstore_half_rte(sum, ((size_t)batch * M + m) * N + n, y);
}
"""


def _defines(op: Operator, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Mapping[str, int]:
    assert isinstance(op, Gemm)
    a, b = inputs
    assert a is not None
    assert b is not None
    _, m, n, k = op.sizes(a, b)
    return {
        "M": m,
        "N": n,
        "K": k,
        "TRANS_A": int(op.trans_a),
        "TRANS_B": int(op.trans_b),
        "A_STEP": m * k if a.rank > 2 else 0,
        "B_STEP": k * n if b.rank > 2 else 0,
    }


def _global_size(inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> tuple[int, int, int]:
    *batch, m, n = outputs[0].dims
    return n, m, math.prod(batch)


class Gemm(TimVxOperator):
    """Y [..., M, N] = A' B', A' [..., M, K] and B' [..., K, N] being A and B, the last two axes swapped where trans_a, trans_b.

    The leading axes are a batch: equal for A and B, or only in one of them, and then the other's matrix serves all. Sums of
    16-bit floats are computed in float32 and rounded once.

    Row-major, and every transpose counts. The sample CustomGemm of TIM-VX looks at trans_a twice and at trans_b never, gives
    its output the transposed shape, takes M, K and N as parameters besides, and parameters of a quantization that its kernel
    does not use.
    """

    inputs = ("A: T", "B: T")
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    kernels = (
        OpenCLKernel(
            source=SOURCE,
            entry={"float32": "gemm_F32", "float16": "gemm_F16"},
            defines=_defines,
            global_size=_global_size,
            origin="dovetail_ops_tim_vx/gemm.py",
        ),
    )

    trans_a: bool = False
    trans_b: bool = False

    def sizes(self, A: TensorType, B: TensorType) -> tuple[tuple[int, ...], int, int, int]:
        """The batch, M, N and K for these types. Raises `ShapeError` for types that do not fit."""
        if A.rank < 2 or B.rank < 2:
            raise ShapeError(f"A is {A}, B is {B}; accepted: matrices, or batches of them")
        *batch_a, m, k = _swapped(A.dims) if self.trans_a else A.dims
        *batch_b, k_b, n = _swapped(B.dims) if self.trans_b else B.dims
        flags = f"trans_a {self.trans_a:d}, trans_b {self.trans_b:d}"
        if k != k_b:
            raise ShapeError(f"A is {A}, B is {B}, {flags}: the inner sizes {k}, {k_b} differ")
        if batch_a and batch_b and batch_a != batch_b:
            raise ShapeError(f"A is {A}, B is {B}: the batches {batch_a}, {batch_b} differ; accepted: equal, or one of them none")
        return tuple(batch_a or batch_b), m, n, k

    def infer(self, A: TensorType, B: TensorType) -> TensorType:
        """Y [..., M, N]."""
        batch, m, n, _ = self.sizes(A, B)
        return A.with_shape((*batch, m, n))

    def reference(self, A: NDArray[Any], B: NDArray[Any]) -> NDArray[Any]:
        """The product in NumPy."""
        wide = np.float64 if A.dtype == np.float64 else np.float32
        left, right = A.astype(wide, copy=False), B.astype(wide, copy=False)
        with np.errstate(all="ignore"):
            y = np.matmul(
                np.swapaxes(left, -1, -2) if self.trans_a else left, np.swapaxes(right, -1, -2) if self.trans_b else right
            )
            return np.asarray(y).astype(A.dtype, copy=False)

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        """A product and a sum for each k."""
        a, b = inputs
        assert a is not None
        assert b is not None
        return 2 * outputs[0].size * self.sizes(a, b)[3]


def _swapped(dims: tuple[int, ...]) -> tuple[int, ...]:
    return (*dims[:-2], dims[-1], dims[-2])
