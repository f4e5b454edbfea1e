"""ReverseSequence: https://onnx.ai/onnx/operators/onnx__ReverseSequence.html."""

import math
from typing import ClassVar

import numpy as np

from dovetail.op import KernelSource, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import BASIC, Array
from dovetail_ops_onnx._written import IntoResult


class ReverseSequence(Movement):
    """The first `sequence_lens[b]` steps of every sequence b turned round; the rest stays."""

    since = 10
    inputs = ("input: T", "sequence_lens: int64")
    outputs = ("Y: T",)
    types = {"T": BASIC}
    kernels: ClassVar[tuple[KernelSource, ...]] = (IntoResult(),)

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
        y = np.empty(x.shape, x.dtype)
        self.write(y, x, lengths)
        return y

    def write(self, dst: Array, x: Array, lengths: Array) -> None:
        """The same into dst."""
        steps = x.shape[self.time_axis]
        given = lengths.tolist()
        if given and not 0 <= min(given) <= max(given) <= steps:
            raise OperatorError(f"sequence_lens is {given}; accepted: 0 to {steps}")
        if len(set(given)) == 1:  # as other formats' Reverse is written
            start, end = ((*(slice(None),) * self.time_axis, part) for part in (slice(given[0]), slice(given[0], None)))
            dst[start], dst[end] = np.flip(x[start], self.time_axis), x[end]
        elif x.size:
            step, batch = np.arange(steps)[:, None], np.arange(len(given))
            step = np.where(step < lengths, lengths - 1 - step, step)
            places = step * len(given) + batch if self.time_axis == 0 else (batch * steps + step).T
            rows = (places.size, math.prod(x.shape[2:]))
            x.reshape(rows).take(places.reshape(-1), 0, dst.reshape(rows), "clip")
