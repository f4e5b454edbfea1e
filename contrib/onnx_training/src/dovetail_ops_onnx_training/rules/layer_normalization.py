"""LayerNormalization, made of operators that have derivatives."""

from typing import Any

from dovetail_ops_onnx_training.rules._normalizations import normalized


def compose(op: Any, inputs: Any) -> Any:
    """Y = (X - mean) / sqrt(variance + epsilon) Scale + B over all axes from `axis` on."""
    x, scale, bias = (*inputs, None)[:3]
    y = normalized(x, range(op.axis % x.rank, x.rank), op.epsilon) * scale
    return y if bias is None else y + bias
