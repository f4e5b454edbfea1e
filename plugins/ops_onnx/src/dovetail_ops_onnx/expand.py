"""Expand: https://onnx.ai/onnx/operators/onnx__Expand.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import TensorType
from dovetail_ops_onnx._elementwise import broadcast
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
        return x.with_shape(_target(x, known_ints(shape, "shape")))

    def reference(self, x: Array, shape: Array) -> Array:
        """A read-only broadcast view of x."""
        return np.broadcast_to(x, _target(TensorType.of(x), ints(shape, "shape")))

    def is_identity(self, inputs: Types, outputs: Sequence[TensorType]) -> bool:
        """True when the shape stays."""
        return inputs[0] == outputs[0]


def _target(x: TensorType, shape: tuple[int, ...]) -> tuple[int, ...]:
    return broadcast(x, x.with_shape(check_dims(shape, "input 'shape'")))
