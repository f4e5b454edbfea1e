"""Reductions: outputs as they would be with keepdims."""

from collections.abc import Sequence
from typing import Any

from dovetail_ops_onnx.equal import Equal
from dovetail_ops_onnx_training.values import Value

__all__ = ["kept", "stretched", "to_chosen"]


def kept(op: Any, inputs: Sequence[Value | None], outputs: Any, gradients: Any) -> tuple[Value, Value, Value]:
    """X, and Y and dY with size 1 along the axes that were reduced."""
    x, axes = (*inputs, None)[:2]
    assert x is not None
    reduced = op.reduced_axes(x.rank, None if axes is None else axes.known)
    dims = tuple(1 if axis in reduced else size for axis, size in enumerate(x.dims))
    return x, outputs[0].reshape(dims), gradients[0].reshape(dims)


def stretched(x: Value, y: Value) -> list[int]:
    """The axes along which Y of size 1 is broadcast to X."""
    return [axis for axis, (wide, narrow) in enumerate(zip(x.dims, y.dims, strict=True)) if wide != narrow]


def to_chosen(op: Any, inputs: Sequence[Value | None], outputs: Any, gradients: Any) -> Value:
    """dY in equal parts for the elements of X that equal Y."""
    x, y, dy = kept(op, inputs, outputs, gradients)
    chosen = x.apply(Equal(), y.expand(x.dims)).cast(x.dtype)
    return chosen * (dy / chosen.sum(stretched(x, y)))
