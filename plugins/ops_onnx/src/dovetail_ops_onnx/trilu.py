"""Trilu: https://onnx.ai/onnx/operators/onnx__Trilu.html."""

from typing import Any, ClassVar

import numpy as np

from dovetail.op import KernelSource, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import scalar
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import BASIC, Array
from dovetail_ops_onnx._written import IntoResult


class Trilu(Movement):
    """Of each matrix in the last two axes, what is not below diagonal `k` (not above it, when `upper` is 0); the rest is zero."""

    since = 14
    inputs = ("input: T", "k?: int64")
    outputs = ("output: T",)
    types = {"T": BASIC}
    kernels: ClassVar[tuple[KernelSource, ...]] = (IntoResult(),)

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
        y = np.empty(x.shape, x.dtype)
        self.write(y, x, k)
        return y

    def write(self, dst: Array, x: Array, k: Array | None = None) -> None:
        """The triangle of x into dst."""
        if not x.size:
            return
        rows, columns = x.shape[-2:]
        diagonal = 0 if k is None else int(k.reshape(()))
        if x.dtype.itemsize <= 8 and x.dtype != object:
            # Bits and all ones or zero: a vector instruction, where a choice among elements is none.
            bits = np.dtype(f"u{x.dtype.itemsize}")
            kept = self._kept(rows, columns, diagonal, bits)
            np.bitwise_and(np.ascontiguousarray(x).view(bits), kept, out=dst.view(bits))
            return
        dst[...] = "" if x.dtype == object else 0
        np.copyto(dst, x, where=self._kept(rows, columns, diagonal, np.dtype(np.bool_)))

    def _kept(self, rows: int, columns: int, diagonal: int, dtype: np.dtype[Any]) -> Array:
        """All ones where elements of [rows, columns] stay, else 0: each row is a part of one vector, a place before the last."""
        ones = dtype.type(True) if dtype == np.bool_ else np.iinfo(dtype).max
        line = np.zeros(rows + columns - 1, dtype)  # from column - row = 1 - rows to columns - 1
        if self.upper:
            line[min(max(diagonal + rows - 1, 0), line.size) :] = ones
        else:
            line[: min(max(diagonal + rows, 0), line.size)] = ones
        size = dtype.itemsize
        return np.ndarray((rows, columns), dtype, line, (rows - 1) * size, (-size, size))
