"""Expand: https://onnx.ai/onnx/operators/onnx__Expand.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import TensorType
from dovetail_ops_onnx._elementwise import broadcast_dims
from dovetail_ops_onnx._shapes import Movement, check_dims, ints, known_ints
from dovetail_ops_onnx._types import BASIC, Array, Types


class Expand(Movement):
    """The input repeated to the shape that it and `shape` broadcast to."""

    since = 8
    inputs = ("input: T", "shape: int64")
    outputs = ("output: T",)
    types = {"T": BASIC}

    def infer(self, x: TensorType, shape: TensorType) -> TensorType:
        """The input's type in the broadcast shape; `shape` must be known."""
        return x.with_shape(_target(x.dims, known_ints(shape, "shape")))

    def reference(self, x: Array, shape: Array) -> Array:
        """A broadcast view of x, read-only where an element is repeated."""
        target = _target(x.shape, ints(shape, "shape"))
        return x if target == x.shape else np.broadcast_to(x, target)

    def is_identity(self, inputs: Types, outputs: Sequence[TensorType]) -> bool:
        """True when the shape stays."""
        return inputs[0] == outputs[0]


def _target(dims: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    return broadcast_dims((dims, check_dims(shape, "input 'shape'")))
