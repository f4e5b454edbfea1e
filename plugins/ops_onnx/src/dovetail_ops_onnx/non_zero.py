"""NonZero: https://onnx.ai/onnx/operators/onnx__NonZero.html."""

import numpy as np

from dovetail.op import DType, TensorType
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import BASIC, Array


class NonZero(Movement):
    """The coordinates of the elements that are not zero, a column for each in row-major order; int64 [rank, N]."""

    since = 9
    inputs = ("X: T",)
    outputs = ("Y: int64",)
    types = {"T": BASIC}

    def infer(self, x: TensorType) -> TensorType:
        """int64 [rank, N], where N is known when the data is."""
        return TensorType(DType.INT64, (x.rank, None))

    def reference(self, x: Array) -> Array:
        """The coordinates. Of a scalar, which has none, as many empty columns as there would be coordinates."""
        if x.ndim == 0:
            return np.zeros((0, int(bool(x))), np.int64)
        return np.stack(np.nonzero(x)).astype(np.int64, copy=False)
