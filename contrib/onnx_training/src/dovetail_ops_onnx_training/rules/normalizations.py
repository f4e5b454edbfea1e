"""Normalizations, composed of operators that have derivatives."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dovetail.op import OperatorError
from dovetail_ops_onnx.abs import Abs
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.sqrt import Sqrt
from dovetail_ops_onnx_training.values import Value

__all__ = ["COMPOSITIONS"]


def _normalized(x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """(X - mean) / sqrt(variance + epsilon) over the axes."""
    centred = x - x.apply(ReduceMean(), x.ints(axes))
    variance = (centred * centred).apply(ReduceMean(), x.ints(axes))
    return centred / (variance + epsilon).apply(Sqrt())


def _channels(x: Value, scale: Value, bias: Value) -> Value:
    """X scaled and shifted by one number for each channel."""
    dims = (scale.type.size, *(1,) * (x.rank - 2))
    return x * scale.cast(x.dtype).reshape(dims) + bias.cast(x.dtype).reshape(dims)


def _batch_normalization(op: Any, inputs: Any) -> Any:
    """Channels normalized by given statistics, or by those of the batch while training; scaled and shifted."""
    x, scale, bias, mean, variance = inputs
    if getattr(op, "training_mode", False):
        return _channels(_normalized(x, [0, *range(2, x.rank)], op.epsilon), scale, bias)
    if not getattr(op, "spatial", True):
        raise OperatorError("BatchNormalization with spatial 0 has no derivative here; accepted: 1")
    factor = scale.cast(x.dtype) / (variance + op.epsilon).apply(Sqrt()).cast(x.dtype)
    return _channels(x, factor, bias.cast(x.dtype) - mean.cast(x.dtype) * factor)


def _group_normalization(op: Any, inputs: Any) -> Any:
    """Each group of channels of each sample normalized; scaled and shifted by channel, or by group before version 21."""
    x, scale, bias = inputs
    samples, count = x.dims[:2]
    grouped = x.reshape((samples, op.num_groups, x.type.size // max(1, samples * op.num_groups)))
    y = _normalized(grouped, [2], op.epsilon).reshape(x.dims)
    if op.since < 21:
        scale, bias = (_for_channels(v, op.num_groups, count) for v in (scale, bias))
    return _channels(y, scale, bias)


def _for_channels(value: Value, groups: int, count: int) -> Value:
    return value.reshape((groups, 1)).expand((groups, count // groups)).reshape((count,))


def _instance_normalization(op: Any, inputs: Any) -> Any:
    x, scale, bias = inputs
    return _channels(_normalized(x, range(2, x.rank), op.epsilon), scale, bias)


def _layer_normalization(op: Any, inputs: Any) -> Any:
    x, scale, bias = (*inputs, None)[:3]
    y = _normalized(x, range(op.axis % x.rank, x.rank), op.epsilon) * scale
    return y if bias is None else y + bias


def _lp_normalization(op: Any, inputs: Any) -> Any:
    (x,) = inputs
    total = x.apply(Abs()).sum([op.axis]) if op.p == 1 else (x * x).sum([op.axis]).apply(Sqrt())
    return x / total


COMPOSITIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "BatchNormalization": _batch_normalization,
    "GroupNormalization": _group_normalization,
    "InstanceNormalization": _instance_normalization,
    "LayerNormalization": _layer_normalization,
    "LpNormalization": _lp_normalization,
}
