"""Compress: https://onnx.ai/onnx/operators/onnx__Compress.html."""

import numpy as np

from dovetail.op import ShapeError, TensorType
from dovetail_ops_onnx._shapes import Movement, check_axis
from dovetail_ops_onnx._types import BASIC, BOOL, Array


class Compress(Movement):
    """The slices along `axis` (of the flattened input without it) whose condition is true.

    A condition that is shorter than the axis leaves out the slices beyond its end. Without `axis` it may have the shape of the
    input, as Paddle2ONNX writes masked_select and ONNX Runtime takes it.
    """

    since = 9
    inputs = ("input: T", "condition: T1")
    outputs = ("output: T",)
    types = {"T": BASIC, "T1": BOOL}

    axis: int | None = None

    def infer(self, x: TensorType, condition: TensorType) -> TensorType:
        """The input's type; the length of the axis is known when the condition is."""
        if condition.rank != 1 and (self.axis is not None or condition.dims != x.dims):
            raise ShapeError(f"input 'condition' is {condition}; accepted: one dimension, or without 'axis' the input's")
        length = None if condition.value is None else int(np.count_nonzero(condition.value))
        if self.axis is None:
            return x.with_shape((length,))
        dims: list[int | None] = list(x.dims)
        dims[check_axis(self.axis, x.rank)] = length
        return x.with_shape(tuple(dims))

    def reference(self, x: Array, condition: Array) -> Array:
        """The chosen slices. Raises `ShapeError` for a condition that chooses beyond the end."""
        axis = 0 if self.axis is None else check_axis(self.axis, x.ndim)
        given = x.reshape(-1) if self.axis is None else x
        chosen = np.flatnonzero(condition)
        if chosen.size and chosen[-1] >= given.shape[axis]:
            raise ShapeError(f"the condition chooses slice {chosen[-1]} of {given.shape[axis]}")
        return np.take(given, chosen, axis)
