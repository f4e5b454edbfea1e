"""GroupNormalization, made of operators that have derivatives."""

from typing import Any

from dovetail_ops_onnx_training.rules._normalizations import channels, normalized
from dovetail_ops_onnx_training.values import Value


def compose(op: Any, inputs: Any) -> Any:
    """Each group of channels of each sample normalized; scaled and shifted by channel, or by group before version 21."""
    x, scale, bias = inputs
    samples, count = x.dims[:2]
    grouped = x.reshape((samples, op.num_groups, x.type.size // max(1, samples * op.num_groups)))
    y = normalized(grouped, [2], op.epsilon).reshape(x.dims)
    if op.since < 21:
        scale, bias = (_for_channels(v, op.num_groups, count) for v in (scale, bias))
    return channels(y, scale, bias)


def _for_channels(value: Value, groups: int, count: int) -> Value:
    return value.reshape((groups, 1)).expand((groups, count // groups)).reshape((count,))
