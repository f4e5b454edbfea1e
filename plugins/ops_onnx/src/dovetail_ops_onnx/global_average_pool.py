"""GlobalAveragePool: the mean over all spatial axes. https://onnx.ai/onnx/operators/onnx__GlobalAveragePool.html"""

from collections.abc import Sequence

import numpy as np

from dovetail.op import FLOATS, Operator, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array, Types
from dovetail_ops_onnx._windows import global_shape


class GlobalAveragePool(Operator):
    """Y [N, C, 1, ...] = mean of X [N, C, D1, ...] over D1, ...; NaN for zero elements."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    propagates_nan = True
    magnitude = "sum"
    types = {"T": FLOATS}

    def infer(self, X: TensorType) -> TensorType:
        return X.with_shape(global_shape(X))

    def reference(self, X: Array) -> Array:
        axes = tuple(range(2, X.ndim))
        with np.errstate(all="ignore"):
            total = np.sum(wide(X), axis=axes, keepdims=True)
            return rounded(total / np.asarray(np.prod(X.shape[2:]), total.dtype), X.dtype)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        assert inputs[0] is not None
        return inputs[0].size + outputs[0].size
