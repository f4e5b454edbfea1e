"""GroupNormalization. https://onnx.ai/onnx/operators/onnx__GroupNormalization.html (Wu and He, 2018)"""

from collections.abc import Sequence

import numpy as np

from dovetail.op import FLOATS, DType, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._normal import channel_shape, check_channels, normalized
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array, Types


class GroupNormalization(Operator):
    """Y = scale * (X - mean) / sqrt(variance + epsilon) + bias, with the statistics of each instance and group of channels.

    scale and bias have one number for each channel. Computed in float32, in float64 for float64 inputs, whatever the narrower
    `stash_type`; the result is rounded once.
    """

    since = 21
    inputs = ("X: T", "scale: T", "bias: T")
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    num_groups: int
    epsilon: float = 1e-5
    stash_type: DType = DType.FLOAT32

    def __post_init__(self) -> None:
        _check_groups(self.num_groups)
        if self.stash_type not in FLOATS:
            raise OperatorError(f"attribute 'stash_type' is {self.stash_type}; accepted: a floating-point type")

    def infer(self, X: TensorType, scale: TensorType, bias: TensorType) -> TensorType:
        check_channels(X, X.dims[1:2], scale=scale, bias=bias)
        return _grouped_type(X, self.num_groups)

    def reference(self, X: Array, scale: Array, bias: Array) -> Array:
        return _group_norm(X, scale, bias, self.num_groups, self.epsilon)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return 7 * outputs[0].size


class GroupNormalization_18(Operator):
    """As version 21, but scale and bias have one number for each group."""

    since = 18
    inputs = ("X: T", "scale: T", "bias: T")
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    num_groups: int
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        _check_groups(self.num_groups)

    def infer(self, X: TensorType, scale: TensorType, bias: TensorType) -> TensorType:
        check_channels(X, (self.num_groups,), scale=scale, bias=bias)
        return _grouped_type(X, self.num_groups)

    def reference(self, X: Array, scale: Array, bias: Array) -> Array:
        each = X.shape[1] // self.num_groups
        return _group_norm(X, np.repeat(scale, each), np.repeat(bias, each), self.num_groups, self.epsilon)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return 7 * outputs[0].size


def _check_groups(groups: int) -> None:
    if groups < 1:
        raise OperatorError(f"attribute 'num_groups' is {groups}; accepted: 1 or more")


def _grouped_type(X: TensorType, groups: int) -> TensorType:
    if X.dims[1] % groups:
        raise ShapeError(f"X is {X}, num_groups is {groups}; accepted: a divisor of the {X.dims[1]} channels")
    return X.with_shape(X.dims)


def _group_norm(X: Array, scale: Array, bias: Array, groups: int, epsilon: float) -> Array:
    parts = wide(X).reshape(X.shape[0], groups, X.shape[1] // groups, *X.shape[2:])
    y = normalized(parts, tuple(range(2, parts.ndim)), epsilon).reshape(X.shape)
    shape = channel_shape(X)
    with np.errstate(all="ignore"):
        return rounded(y * wide(scale).reshape(shape) + wide(bias).reshape(shape), X.dtype)
