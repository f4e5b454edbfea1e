"""LRN: local response normalization across channels. https://onnx.ai/onnx/operators/onnx__LRN.html (Krizhevsky et al., 2012)"""

from collections.abc import Sequence

import numpy as np

from dovetail.op import FLOATS, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array, Types


class LRN(Operator):
    """Y = X / (bias + alpha / size * s) ^ beta, s being the sum of squares over `size` channels round each element's own.

    The region has floor((size - 1) / 2) channels before and ceil((size - 1) / 2) after.
    """

    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise OperatorError(f"attribute 'size' is {self.size}; accepted: 1 or more")

    def infer(self, X: TensorType) -> TensorType:
        if X.rank < 2:
            raise ShapeError(f"X is {X}; accepted: rank 2 or more, [N, C, D1, ...]")
        return X.with_shape(X.dims)

    def reference(self, X: Array) -> Array:
        x = wide(X)
        channels = X.shape[1]
        before, after = (self.size - 1) // 2, self.size // 2
        with np.errstate(all="ignore"):
            total = np.empty_like(x)
            for c in range(channels):
                total[:, c] = np.sum(x[:, max(0, c - before) : c + after + 1] ** 2, axis=1)
            return rounded(x / (self.bias + self.alpha / self.size * total) ** self.beta, X.dtype)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return outputs[0].size * (2 * self.size + 4)
