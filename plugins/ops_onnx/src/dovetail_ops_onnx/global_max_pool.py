"""GlobalMaxPool: the largest element over all spatial axes. https://onnx.ai/onnx/operators/onnx__GlobalMaxPool.html"""

from collections.abc import Sequence

import numpy as np

from dovetail.op import FLOATS, Operator, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array, Types
from dovetail_ops_onnx._windows import global_shape


class GlobalMaxPool(Operator):
    """Y [N, C, 1, ...] = maximum of X [N, C, D1, ...] over D1, ...; -inf for zero elements, NaN when one is NaN."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    propagates_nan = True
    types = {"T": FLOATS}

    def infer(self, X: TensorType) -> TensorType:
        return X.with_shape(global_shape(X))

    def reference(self, X: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return rounded(np.max(wide(X), axis=tuple(range(2, X.ndim)), keepdims=True, initial=-np.inf), X.dtype)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        assert inputs[0] is not None
        return inputs[0].size
