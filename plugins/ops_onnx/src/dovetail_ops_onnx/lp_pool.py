"""LpPool: https://onnx.ai/onnx/operators/onnx__LpPool.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import OperatorError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._pooling import Pooling
from dovetail_ops_onnx._types import Array, Types
from dovetail_ops_onnx._windows import windows


class LpPool(Pooling):
    """Y [N, C, O1, ...] = (sum of |X|^p over each window)^(1/p); elements outside the input count as 0."""

    since = 2
    outputs = ("Y: T",)
    p: int = 2

    def __post_init__(self) -> None:
        if self.p < 1:
            raise OperatorError(f"attribute 'p' is {self.p}; accepted: 1 or more")

    def infer(self, X: TensorType) -> TensorType:
        """The input's type in the pooled shape."""
        return X.with_shape((*X.dims[:2], *self.geometry(X).output))

    def reference(self, X: Array) -> Array:
        """By windows."""
        geometry = self.geometry(TensorType.of(X)).trimmed
        x = wide(X)
        view = windows(x, geometry, 0)
        total = np.zeros((*X.shape[:2], *geometry.output), x.dtype)
        with np.errstate(all="ignore"):
            for k in np.ndindex(*geometry.kernel):
                total += np.abs(view[(..., *k)]) ** self.p
            return rounded(total ** (1 / self.p), X.dtype)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        """A power and an addition for each element of a window."""
        return 2 * outputs[0].size * int(np.prod(self.kernel_shape))
