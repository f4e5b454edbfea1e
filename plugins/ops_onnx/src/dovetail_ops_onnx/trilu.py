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
        number = np.min_scalar_type(-rows - columns - 2)  # narrow numbers are compared faster
        column, first = np.arange(columns, dtype=number), np.arange(diagonal, rows + diagonal, dtype=number)[:, None]
        kept = column >= first if self.upper else column <= first
        if x.dtype.itemsize <= 4:
            # Bits times one or zero: a vector instruction, where a choice among elements is none.
            bits = np.dtype(f"u{x.dtype.itemsize}")
            return np.asarray(np.multiply(np.ascontiguousarray(x).view(bits), kept.astype(bits)).view(x.dtype))
        y = np.full(x.shape, "", object) if x.dtype == object else np.zeros(x.shape, x.dtype)
        np.copyto(y, x, where=kept)
        return y
