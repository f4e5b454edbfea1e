"""MatMul: matrix product with NumPy's rules. https://onnx.ai/onnx/operators/onnx__MatMul.html"""

from collections.abc import Sequence

import numpy as np

from dovetail.op import FLOATS, DType, Operator, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array, Types


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
            return rounded(np.matmul(wide(A), wide(B)), A.dtype)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        assert inputs[0] is not None
        return 2 * outputs[0].size * inputs[0].dims[-1]
