"""Hardmax: 1 at the largest element, else 0. https://onnx.ai/onnx/operators/onnx__Hardmax.html"""

from collections.abc import Sequence

import numpy as np

from dovetail.op import FLOATS, Operator, TensorType
from dovetail.ops._axes import flattened
from dovetail.ops._elementwise import wide
from dovetail.ops._shapes import check_axis
from dovetail.ops._types import Array, Types


class Hardmax(Operator):
    """output = 1 at the first largest element along `axis`, 0 elsewhere; a NaN counts as the largest."""

    since = 13
    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    axis: int = -1

    def infer(self, X: TensorType) -> TensorType:
        check_axis(self.axis, X.rank)
        return X.with_shape(X.dims)

    def reference(self, X: Array) -> Array:
        return _hardmax(X, self.axis)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return outputs[0].size


class Hardmax_1(Operator):  # noqa: N801  # <op_type>_<since>
    """Hardmax over everything from `axis` on: the input is taken as a matrix, flattened before and from `axis`."""

    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": FLOATS}
    axis: int = 1

    def infer(self, X: TensorType) -> TensorType:
        check_axis(self.axis, X.rank)
        return X.with_shape(X.dims)

    def reference(self, X: Array) -> Array:
        rows = X.reshape(flattened(X.shape, check_axis(self.axis, X.ndim)))
        return _hardmax(rows, 1).reshape(X.shape)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return outputs[0].size


def _hardmax(X: Array, axis: int) -> Array:
    y = np.zeros_like(X, order="C")
    if X.size:
        np.put_along_axis(y, np.expand_dims(np.argmax(wide(X), axis=axis), axis), 1, axis=axis)
    return y
