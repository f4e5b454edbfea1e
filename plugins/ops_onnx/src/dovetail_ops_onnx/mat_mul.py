"""MatMul: matrix product with NumPy's rules. https://onnx.ai/onnx/operators/onnx__MatMul.html"""

from collections.abc import Sequence

import numpy as np

from dovetail.op import FLOATS, DType, Operator, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array, Types

_FEW = 512
"""Elements of both factors up to which integers are multiplied as they are."""


class MatMul(Operator):
    """Y = A @ B as `numpy.matmul`: leading axes broadcast; a vector is a row on the left, a column on the right.

    Integers wrap.
    """

    inputs = ("A: T", "B: T")
    outputs = ("Y: T",)
    propagates_nan = True
    magnitude = "sum_of_products"
    types = {"T": FLOATS | {DType.INT32, DType.INT64, DType.UINT32, DType.UINT64}}

    def infer(self, A: TensorType, B: TensorType) -> TensorType:
        if not A.rank or not B.rank:
            raise ShapeError(f"A is {A}, B is {B}; accepted: rank 1 or more")
        if A.dims[-1] != B.dims[-2 if B.rank > 1 else 0]:
            raise ShapeError(f"A is {A}, B is {B}; the inner sizes {A.dims[-1]}, {B.dims[-2 if B.rank > 1 else 0]} differ")
        try:
            batch = np.broadcast_shapes(A.dims[:-2], B.dims[:-2]) if B.rank > 2 else A.dims[:-2]  # that takes 4 us
        except ValueError:
            raise ShapeError(f"A is {A}, B is {B}; the axes before the last two do not broadcast") from None
        return A.with_shape((*batch, *A.dims[-2:-1], *(B.dims[-1:] if B.rank > 1 else ())))

    def reference(self, A: Array, B: Array) -> Array:
        with np.errstate(all="ignore"):
            if A.dtype.kind in "iu" and _is_exact(A, B):
                product: Array = np.matmul(A.astype(np.float64), B.astype(np.float64))
                return product.astype(np.int64).astype(A.dtype)
            return rounded(np.matmul(wide(A), wide(B)), A.dtype)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        assert inputs[0] is not None
        return 2 * outputs[0].size * inputs[0].dims[-1]


def _is_exact(A: Array, B: Array) -> bool:
    """Whether all sums are exact in float64, whose products are some 20 times as fast as those of integers."""
    if A.size + B.size < _FEW:
        return False
    largest = [max(abs(int(x.min(initial=0))), int(x.max(initial=0))) for x in (A, B)]
    return bool(A.shape[-1] * largest[0] * largest[1] < 1 << 53)
