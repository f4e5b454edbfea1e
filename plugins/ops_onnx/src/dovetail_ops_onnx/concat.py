"""Concat: https://onnx.ai/onnx/operators/onnx__Concat.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._shapes import Movement, check_axis
from dovetail_ops_onnx._types import BASIC, Array, Types


class Concat(Movement):
    """The inputs one after the other along `axis`."""

    since = 4
    inputs = ("inputs*: T",)
    outputs = ("concat_result: T",)
    propagates_nan = True
    magnitude = "sum"
    types = {"T": BASIC}

    axis: int

    def infer(self, *inputs: TensorType) -> TensorType:
        """The type of the first input, with the sizes along the axis added up; all other sizes must agree."""
        if not inputs:
            raise OperatorError("takes at least 1 input, got 0")
        first = inputs[0].dims
        axis = check_axis(self.axis, len(first))
        if any(_without(t.dims, axis) != _without(first, axis) or t.rank != len(first) for t in inputs):
            shapes = ", ".join(str(list(t.dims)) for t in inputs)
            raise ShapeError(f"the shapes {shapes} differ outside axis {axis}; accepted: equal sizes there")
        return inputs[0].with_shape((*first[:axis], sum(t.dims[axis] for t in inputs), *first[axis + 1 :]))

    def reference(self, *inputs: Array) -> Array:
        """The inputs concatenated."""
        return np.concatenate(inputs, self.axis)

    def is_identity(self, inputs: Types, outputs: Sequence[TensorType]) -> bool:
        """True for a single input."""
        return len(inputs) == 1


def _without(dims: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return dims[:axis] + dims[axis + 1 :]
