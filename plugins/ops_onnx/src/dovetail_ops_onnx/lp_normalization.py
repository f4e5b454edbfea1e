"""LpNormalization: division by the norm. https://onnx.ai/onnx/operators/onnx__LpNormalization.html"""

from collections.abc import Sequence

import numpy as np

from dovetail.op import FLOATS, Operator, OperatorError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._shapes import check_axis
from dovetail_ops_onnx._types import Array, Types


class LpNormalization(Operator):
    """output = input / norm along `axis`, the norm being the sum of magnitudes (p 1) or Euclidean (p 2); 0 where it is 0."""

    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    axis: int = -1
    p: int = 2

    def __post_init__(self) -> None:
        if self.p not in (1, 2):
            raise OperatorError(f"attribute 'p' is {self.p}; accepted: 1 or 2")

    def infer(self, X: TensorType) -> TensorType:
        check_axis(self.axis, X.rank)
        return X.with_shape(X.dims)

    def reference(self, X: Array) -> Array:
        x = wide(X)
        with np.errstate(all="ignore"):
            magnitude = np.sum(np.abs(x) ** self.p, axis=self.axis, keepdims=True)
            norm = np.sqrt(magnitude) if self.p == 2 else magnitude
            return rounded(np.where(norm == 0, np.zeros_like(x), x / norm), X.dtype)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return 3 * outputs[0].size
