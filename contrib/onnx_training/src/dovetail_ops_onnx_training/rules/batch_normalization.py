"""BatchNormalization, made of operators that have derivatives."""

from typing import Any

from dovetail.op import OperatorError
from dovetail_ops_onnx.sqrt import Sqrt
from dovetail_ops_onnx_training.rules._normalizations import channels, normalized


def compose(op: Any, inputs: Any) -> Any:
    """channels normalized by given statistics, or by those of the batch while training; scaled and shifted."""
    x, scale, bias, mean, variance = inputs
    if getattr(op, "training_mode", False):
        return channels(normalized(x, [0, *range(2, x.rank)], op.epsilon), scale, bias)
    if not getattr(op, "spatial", True):
        raise OperatorError("BatchNormalization with spatial 0 has no derivative here; accepted: 1")
    factor = scale.cast(x.dtype) / (variance + op.epsilon).apply(Sqrt()).cast(x.dtype)
    return channels(x, factor, bias.cast(x.dtype) - mean.cast(x.dtype) * factor)
