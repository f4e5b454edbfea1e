"""Max and Min: what several inputs share."""

import functools
import operator
from collections.abc import Sequence

from dovetail_ops_onnx.equal import Equal
from dovetail_ops_onnx_training.values import Value

__all__ = ["shared"]


def shared(inputs: Sequence[Value], y: Value, dy: Value) -> tuple[Value, ...]:
    """dY in equal parts for the inputs that equal Y."""
    chosen = [x.apply(Equal(), y).cast(y.dtype) for x in inputs]
    part = dy / functools.reduce(operator.add, chosen)
    return tuple((part * one).like(x) for one, x in zip(chosen, inputs, strict=True))
