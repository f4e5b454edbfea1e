"""ReverseSequence: https://onnx.ai/onnx/operators/onnx__ReverseSequence.html."""

import math

import numpy as np

from dovetail.op import OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import BASIC, Array


class ReverseSequence(Movement):
    """The first `sequence_lens[b]` steps of every sequence b turned round; the rest stays."""

    since = 10
    inputs = ("input: T", "sequence_lens: int64")
    outputs = ("Y: T",)
    types = {"T": BASIC}

    batch_axis: int = 1
    time_axis: int = 0

    def __post_init__(self) -> None:
        if {self.batch_axis, self.time_axis} != {0, 1}:
            raise OperatorError(f"batch_axis is {self.batch_axis}, time_axis {self.time_axis}; accepted: 0 and 1, one each")

    def infer(self, x: TensorType, lengths: TensorType) -> TensorType:
        """The input's type."""
        if x.rank < 2 or lengths.dims != (x.dims[self.batch_axis],):
            raise ShapeError(
                f"input 'input' is {x}, 'sequence_lens' {lengths}; accepted: rank 2 or more, a length for each batch"
            )
        return x.with_shape(x.dims)

    def reference(self, x: Array, lengths: Array) -> Array:
        """A copy. Raises `OperatorError` for a length beyond the time axis."""
        steps = x.shape[self.time_axis]
        if ((lengths < 0) | (lengths > steps)).any():
            raise OperatorError(f"sequence_lens is {lengths.tolist()}; accepted: 0 to {steps}")
        if lengths.size and lengths.min() == lengths.max():  # as other formats' Reverse is written
            y, end = x.copy(), int(lengths[0])
            part = (slice(None),) * self.time_axis
            y[(*part, slice(end))] = x[(*part, slice(end))][(*part, slice(None, None, -1))]
            return y
        step, batch = np.arange(steps)[:, None], np.arange(len(lengths))
        step = np.where(step < lengths, lengths - 1 - step, step)
        places = step * len(lengths) + batch if self.time_axis == 0 else (batch * steps + step).T
        rows = x.reshape(places.size, math.prod(x.shape[2:]))
        return rows.take(places.reshape(-1), 0).reshape(x.shape)
