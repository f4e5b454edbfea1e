"""BatchNormalization. https://onnx.ai/onnx/operators/onnx__BatchNormalization.html (Ioffe and Szegedy, 2015)"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dovetail.op import FLOATS, DType, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array, Types


class BatchNormalization(Operator):
    """Y = (X - mean) / sqrt(var + epsilon) * scale + B with one scale, B, mean and var for each channel (axis 1).

    With `training_mode`, mean and (population) variance are those of X, and running_mean and running_var are returned too:
    input * momentum + current * (1 - momentum). A 1-D input has one channel.
    """

    since = 14
    inputs = ("X: T", "scale: T1", "B: T1", "input_mean: T2", "input_var: T2")
    propagates_nan = True
    outputs: ClassVar[tuple[Any, ...]] = ("Y: T", "running_mean?: T2", "running_var?: T2")
    types = {"T": FLOATS, "T1": FLOATS, "T2": FLOATS}
    epsilon: float = 1e-5
    momentum: float = 0.9
    training_mode: bool = False

    def infer(self, X: TensorType, scale: TensorType, B: TensorType, mean: TensorType, var: TensorType) -> Any:
        _check(_channels(X), scale, B, mean, var)
        y = X.with_shape(X.dims)
        return (y, *(mean.with_shape(mean.dims) for _ in self.outputs[1:])) if self.training_mode else y

    def reference(self, X: Array, scale: Array, B: Array, mean: Array, var: Array) -> Any:
        shape = (*_channels(TensorType.of(X)), *(1,) * (X.ndim - 2))
        if not self.training_mode:
            return _normalize(X, scale, B, mean, var, self.epsilon, shape)
        x = wide(X)
        axes = (0, *range(2, X.ndim))
        with np.errstate(all="ignore"):
            count = np.asarray(x.size / max(1, shape[0]), x.dtype)
            current = np.sum(x, axis=axes) / count
            spread = np.sum((x - current.reshape(shape)) ** 2, axis=axes) / count
            new_mean = wide(mean) * self.momentum + current * (1 - self.momentum)
            new_var = wide(var) * self.momentum + spread * (1 - self.momentum)
            saved = current, 1 / np.sqrt(spread + self.epsilon)
        y = _normalize(X, scale, B, current, spread, self.epsilon, shape)
        others = (new_mean, new_var, *saved)[: len(self.outputs) - 1]
        return y, *(rounded(a, mean.dtype) for a in others)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return 2 * outputs[0].size


class BatchNormalization_9(BatchNormalization):
    """As version 14, in training if the node has five outputs; an output is left out by an empty name, not by a shorter list.

    saved_mean is the mean of X, and saved_var 1 / sqrt(variance of X + epsilon): ONNX does not define it, onnxruntime has that.
    """

    since = 9
    outputs = ("Y: T", "mean?: T2", "var?: T2", "saved_mean?: T2", "saved_var?: T2")
    types = dict.fromkeys(("T", "T1", "T2"), FLOATS - {DType.BFLOAT16})
    output_count = "num_outputs"
    num_outputs: int = 1

    def __post_init__(self) -> None:
        if self.num_outputs not in (1, 5):
            raise OperatorError(f"has {self.num_outputs} outputs; accepted: 1, or in training 5")
        vars(self)["training_mode"] |= self.num_outputs == 5


class BatchNormalization_7(Operator):
    """As version 9, for inference only; with `spatial` 0 there is one scale, B, mean and var for each element of X[0]."""

    since = 7
    inputs = ("X: T", "scale: T", "B: T", "mean: T", "var: T")
    propagates_nan = True
    outputs = ("Y: T",)
    types = {"T": FLOATS}
    epsilon: float = 1e-5
    momentum: float = 0.9
    spatial: bool = True

    def infer(self, X: TensorType, scale: TensorType, B: TensorType, mean: TensorType, var: TensorType) -> TensorType:
        _check(_channels(X) if self.spatial else X.dims[1:], scale, B, mean, var)
        return X.with_shape(X.dims)

    def reference(self, X: Array, scale: Array, B: Array, mean: Array, var: Array) -> Array:
        shape = (*_channels(TensorType.of(X)), *(1,) * (X.ndim - 2)) if self.spatial else X.shape[1:]
        return _normalize(X, scale, B, mean, var, self.epsilon, shape)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return 2 * outputs[0].size


def _channels(X: TensorType) -> tuple[int, ...]:
    if X.rank == 0:
        raise ShapeError(f"X is {X}; accepted: rank 1 or more, [N, C, D1, ...]")
    return (X.dims[1] if X.rank > 1 else 1,)


def _check(wanted: tuple[int, ...], *parameters: TensorType) -> None:
    for name, given in zip(("scale", "B", "mean", "var"), parameters, strict=True):
        if given.dims != wanted:
            raise ShapeError(f"input {name!r} is {given}; accepted: shape {list(wanted)}")


def _normalize(
    X: Array,
    scale: Array,
    B: Array,
    mean: Array,
    var: Array,
    epsilon: float,
    shape: tuple[int, ...],
) -> Array:
    with np.errstate(all="ignore"):
        factor = (wide(scale) / np.sqrt(wide(var) + epsilon)).reshape(shape)
        return rounded((wide(X) - wide(mean).reshape(shape)) * factor + wide(B).reshape(shape), X.dtype)
