"""GlobalLpPool: https://onnx.ai/onnx/operators/onnx__GlobalLpPool.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import FLOATS, Operator, OperatorError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array, Types
from dovetail_ops_onnx._windows import global_shape


class GlobalLpPool(Operator):
    """Y [N, C, 1, ...] = (sum of |X|^p over D1, ...)^(1/p)."""

    since = 2
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    p: int = 2

    def __post_init__(self) -> None:
        if self.p < 1:
            raise OperatorError(f"attribute 'p' is {self.p}; accepted: 1 or more")

    def infer(self, X: TensorType) -> TensorType:
        """Ones for the spatial dimensions."""
        return X.with_shape(global_shape(X))

    def reference(self, X: Array) -> Array:
        """By one sum."""
        with np.errstate(all="ignore"):
            total = np.sum(np.abs(wide(X)) ** self.p, axis=tuple(range(2, X.ndim)), keepdims=True)
            return rounded(total ** (1 / self.p), X.dtype)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        """A power and an addition for each element."""
        assert inputs[0] is not None
        return 2 * inputs[0].size
