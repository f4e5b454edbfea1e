"""Shared by the normalizations over instances and groups."""

import math

import numpy as np

from dovetail.op import ShapeError, TensorType
from dovetail_ops_onnx._types import Array


def check_channels(X: TensorType, wanted: tuple[int, ...], **parameters: TensorType) -> None:
    """Raise `ShapeError` unless X has a channel axis and every parameter has the shape `wanted`."""
    if X.rank < 2:
        raise ShapeError(f"the input is {X}; accepted: rank 2 or more, [N, C, D1, ...]")
    for name, given in parameters.items():
        if given.dims != wanted:
            raise ShapeError(f"input {name!r} is {given}; accepted: shape {list(wanted)}")


def channel_shape(X: Array) -> tuple[int, ...]:
    """The shape that lets one number for each channel broadcast to X [N, C, D1, ...]."""
    return (-1, *(1,) * (X.ndim - 2)) if X.shape[1] else (0, *(1,) * (X.ndim - 2))


def normalized(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    """(x - mean) / sqrt(variance + epsilon) with the mean and population variance over `axes`."""
    with np.errstate(all="ignore"):
        count = np.asarray(math.prod(x.shape[a] for a in axes), x.dtype)
        centred: Array = x - np.sum(x, axis=axes, keepdims=True) / count
        variance = np.sum(centred * centred, axis=axes, keepdims=True) / count
        y: Array = centred / np.sqrt(variance + np.asarray(epsilon, x.dtype))
        return y
