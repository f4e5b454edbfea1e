"""Softmax: exp(x) / sum(exp(x)). https://onnx.ai/onnx/operators/onnx__Softmax.html"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import FLOATS, Operator, TensorType
from dovetail.ops._axes import flattened, normal_axis
from dovetail.ops._numerics import rounded, widen


class Softmax(Operator):
    """output = exp(input - max) / sum(exp(input - max)) along `axis`."""

    since = 13
    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    axis: int = -1

    def infer(self, X: TensorType) -> TensorType:
        normal_axis(self.axis, X.rank)
        return X.with_shape(X.dims)

    def reference(self, X: NDArray[Any]) -> NDArray[Any]:
        return _softmax(X, self.axis)

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return 5 * outputs[0].size


class Softmax_1(Operator):  # noqa: N801  # <op_type>_<since>
    """Softmax over everything from `axis` on: the input is taken as a matrix, flattened before and from `axis`."""

    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    axis: int = 1

    def infer(self, X: TensorType) -> TensorType:
        normal_axis(self.axis, X.rank)
        return X.with_shape(X.dims)

    def reference(self, X: NDArray[Any]) -> NDArray[Any]:
        rows = X.reshape(flattened(X.shape, normal_axis(self.axis, X.ndim)))
        return _softmax(rows, 1).reshape(X.shape)

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return 5 * outputs[0].size


def _softmax(X: NDArray[Any], axis: int) -> NDArray[Any]:
    x = widen(X)
    with np.errstate(all="ignore"):
        e = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
        return rounded(e / np.sum(e, axis=axis, keepdims=True), X.dtype)
