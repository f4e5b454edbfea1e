"""Tile: https://onnx.ai/onnx/operators/onnx__Tile.html."""

from collections.abc import Sequence
from itertools import chain
from typing import ClassVar

import numpy as np

from dovetail.op import KernelSource, ShapeError, TensorType
from dovetail_ops_onnx._shapes import Movement, check_dims, ints, known_ints
from dovetail_ops_onnx._types import BASIC, Array, Types
from dovetail_ops_onnx._written import IntoResult


class Tile(Movement):
    """The input `repeats[i]` times along each axis i."""

    since = 6
    inputs = ("input: T", "repeats: int64")
    outputs = ("output: T",)
    types = {"T": BASIC}
    kernels: ClassVar[tuple[KernelSource, ...]] = (IntoResult(),)

    def infer(self, x: TensorType, repeats: TensorType) -> TensorType:
        """The input's type with its sizes multiplied; `repeats` must be known."""
        counts = _checked(known_ints(repeats, "repeats"), x.rank)
        return x.with_shape(tuple(d * n for d, n in zip(x.dims, counts, strict=True)))

    def reference(self, x: Array, repeats: Array) -> Array:
        """np.tile(x, repeats)."""
        return np.tile(x, _checked(ints(repeats, "repeats"), x.ndim))

    def write(self, dst: Array, x: Array, repeats: Array) -> None:
        """The same into dst, each axis of which is (repeats, size), which x broadcasts to."""
        counts = _checked(ints(repeats, "repeats"), x.ndim)
        once = x.reshape(tuple(chain.from_iterable((1, size) for size in x.shape)))
        dst.reshape(tuple(chain.from_iterable(zip(counts, x.shape, strict=True))))[...] = once

    def is_identity(self, inputs: Types, outputs: Sequence[TensorType]) -> bool:
        """True when the shape stays."""
        return inputs[0] == outputs[0]


def _checked(repeats: tuple[int, ...], rank: int) -> tuple[int, ...]:
    if len(repeats) != rank:
        raise ShapeError(f"repeats is {list(repeats)}; accepted: {rank} numbers, one for each axis of the input")
    return check_dims(repeats, "repeats")
