"""InstanceNormalization, made of operators that have derivatives."""

from typing import Any

from dovetail_ops_onnx_training.rules._normalizations import channels, normalized


def compose(op: Any, inputs: Any) -> Any:
    """each channel of each sample normalized, scaled and shifted."""
    x, scale, bias = inputs
    return channels(normalized(x, range(2, x.rank), op.epsilon), scale, bias)
