"""Flatten: https://onnx.ai/onnx/operators/onnx__Flatten.html."""

import math

from dovetail.op import ShapeError, TensorType
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import ALL, Array


class Flatten(Movement):
    """A matrix of the same bytes: the dimensions before `axis` become its rows, the others its columns."""

    inputs = ("input: T",)
    outputs = ("output: T",)
    types = {"T": ALL}
    is_view = True

    axis: int = 1

    def infer(self, x: TensorType) -> TensorType:
        """The input's type with two dimensions."""
        return x.with_shape(self._target(x.dims))

    def reference(self, x: Array) -> Array:
        """x as a matrix."""
        return x.reshape(self._target(x.shape))

    def _target(self, dims: tuple[int, ...]) -> tuple[int, int]:
        rank = len(dims)
        if not -rank <= self.axis <= rank:
            raise ShapeError(f"axis is {self.axis}; accepted: {-rank} to {rank}")
        axis = self.axis + rank if self.axis < 0 else self.axis
        return math.prod(dims[:axis]), math.prod(dims[axis:])
