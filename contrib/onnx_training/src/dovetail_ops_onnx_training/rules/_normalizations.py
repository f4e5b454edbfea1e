"""Shared by the normalizations."""

from collections.abc import Sequence

from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.sqrt import Sqrt
from dovetail_ops_onnx_training.values import Value

__all__ = ["channels", "normalized"]


def normalized(x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """(X - mean) / sqrt(variance + epsilon) over the axes."""
    centred = x - x.apply(ReduceMean(), x.ints(axes))
    variance = (centred * centred).apply(ReduceMean(), x.ints(axes))
    return centred / (variance + epsilon).apply(Sqrt())


def channels(x: Value, scale: Value, bias: Value) -> Value:
    """X scaled and shifted by one number for each channel."""
    dims = (-1 if x.rank < 2 else x.dims[1], *(1,) * (x.rank - 2))
    dims = (scale.type.size, *dims[1:])
    return x * scale.cast(x.dtype).reshape(dims) + bias.cast(x.dtype).reshape(dims)
