"""LpNormalization: division by the norm. https://onnx.ai/onnx/operators/onnx__LpNormalization.html"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from dovetail.op import FLOATS, KernelSource, Operator, OperatorError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._shapes import check_axis
from dovetail_ops_onnx._types import Array, Types
from dovetail_ops_onnx._written import IntoResult


class LpNormalization(Operator):
    """output = input / norm along `axis`, the norm being the sum of magnitudes (p 1) or Euclidean (p 2); 0 where it is 0."""

    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    kernels: ClassVar[tuple[KernelSource, ...]] = (IntoResult(),)
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
        y = np.empty(x.shape, x.dtype)
        self._normalize(x, y)
        return rounded(y, X.dtype)

    def write(self, dst: Array, X: Array) -> None:
        """The same into dst."""
        if X.dtype.itemsize >= 4:
            self._normalize(X, dst)
        else:
            dst[...] = self.reference(X)

    def _normalize(self, x: Array, dst: Array) -> None:
        """Into dst, which holds the powers before."""
        with np.errstate(all="ignore"):
            (np.square if self.p == 2 else np.abs)(x, out=dst)
            norm = np.add.reduce(dst, axis=self.axis, keepdims=True)
            if self.p == 2:
                np.sqrt(norm, out=norm)
            np.divide(x, norm, out=dst)
        if (lost := norm == 0).any():
            np.copyto(dst, 0, where=lost)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return 3 * outputs[0].size
