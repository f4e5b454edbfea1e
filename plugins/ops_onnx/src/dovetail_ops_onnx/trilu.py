"""Trilu: https://onnx.ai/onnx/operators/onnx__Trilu.html."""

import numpy as np

from dovetail.op import ShapeError, TensorType
from dovetail_ops_onnx._elementwise import scalar
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import BASIC, Array


class Trilu(Movement):
    """Of each matrix in the last two axes, what is not below diagonal `k` (not above it, when `upper` is 0); the rest is zero."""

    since = 14
    inputs = ("input: T", "k?: int64")
    outputs = ("output: T",)
    types = {"T": BASIC}

    upper: bool = True

    def infer(self, x: TensorType, k: TensorType | None = None) -> TensorType:
        """The input's type."""
        if x.rank < 2:
            raise ShapeError(f"the input is {x}; accepted: rank 2 or higher")
        if k is not None:
            scalar(k, "k")
        return x.with_shape(x.shape)

    def reference(self, x: Array, k: Array | None = None) -> Array:
        """The triangle of x."""
        rows, columns = x.shape[-2:]
        # A diagonal further out changes nothing more, and stays inside int64.
        diagonal = 0 if k is None else min(max(int(k.reshape(())), -rows - 1), columns + 1)
        distance = np.arange(columns) - np.arange(rows)[:, None]
        kept = distance >= diagonal if self.upper else distance <= diagonal
        zero = np.array("", object) if x.dtype == object else np.zeros((), x.dtype)
        return np.asarray(np.where(kept, x, zero)).astype(x.dtype, copy=False)
