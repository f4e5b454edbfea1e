"""LogSoftmax: the logarithm of Softmax. https://onnx.ai/onnx/operators/onnx__LogSoftmax.html"""

from collections.abc import Sequence

import numpy as np

from dovetail.op import FLOATS, Operator, TensorType
from dovetail.ops._axes import flattened
from dovetail.ops._elementwise import wide
from dovetail.ops._numerics import rounded
from dovetail.ops._shapes import check_axis
from dovetail.ops._types import Array, Types


class LogSoftmax(Operator):
    """output = input - max - log(sum(exp(input - max))) along `axis`."""

    since = 13
    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    axis: int = -1

    def infer(self, X: TensorType) -> TensorType:
        check_axis(self.axis, X.rank)
        return X.with_shape(X.dims)

    def reference(self, X: Array) -> Array:
        return _log_softmax(X, self.axis)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return 5 * outputs[0].size


class LogSoftmax_1(Operator):  # noqa: N801  # <op_type>_<since>
    """LogSoftmax over everything from `axis` on: the input is taken as a matrix, flattened before and from `axis`."""

    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    axis: int = 1

    def infer(self, X: TensorType) -> TensorType:
        check_axis(self.axis, X.rank)
        return X.with_shape(X.dims)

    def reference(self, X: Array) -> Array:
        rows = X.reshape(flattened(X.shape, check_axis(self.axis, X.ndim)))
        return _log_softmax(rows, 1).reshape(X.shape)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return 5 * outputs[0].size


def _log_softmax(X: Array, axis: int) -> Array:
    x = wide(X)
    with np.errstate(all="ignore"):
        centred = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
        return rounded(centred - np.log(np.sum(np.exp(centred), axis=axis, keepdims=True)), X.dtype)
