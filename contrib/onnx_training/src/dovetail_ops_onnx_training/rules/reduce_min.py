"""The derivative of ReduceMin."""

from typing import Any

from dovetail_ops_onnx.equal import Equal
from dovetail_ops_onnx_training.rules._reductions import kept, stretched


def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dY goes to the smallest elements, in equal parts."""
    x, y, dy = kept(op, inputs, outputs, gradients)
    chosen = x.apply(Equal(), y.expand(x.dims)).cast(x.dtype)
    return chosen * (dy / chosen.sum(stretched(x, y)))
