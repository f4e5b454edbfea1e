"""Slice: https://onnx.ai/onnx/operators/onnx__Slice.html."""

from collections.abc import Sequence
from functools import lru_cache

from dovetail.op import ShapeError, TensorType
from dovetail_ops_onnx._shapes import Movement, check_axes, ints, known_ints
from dovetail_ops_onnx._types import BASIC, INDICES, Array, Types


class Slice(Movement):
    """Python's slice start:end:step along each of `axes`, which are the first ones when left out.

    Unlike Python's, a slice backwards from before the first element begins at the first.
    """

    since = 10
    inputs = ("data: T", "starts: Tind", "ends: Tind", "axes?: Tind", "steps?: Tind")
    outputs = ("output: T",)
    propagates_nan = True
    magnitude = "sum"
    types = {"T": BASIC, "Tind": INDICES}

    def infer(self, data: TensorType, *bounds: TensorType | None) -> TensorType:
        """The data's type with the sizes of the slices, which must be known."""
        slices = _slices(data.dims, [None if b is None else known_ints(b, name) for b, name in zip(bounds, _NAMES, strict=False)])
        return data.with_shape(tuple([len(range(*s.indices(d))) for s, d in zip(slices, data.dims, strict=True)]))

    def reference(self, data: Array, *bounds: Array | None) -> Array:
        """A view of the slice."""
        return data[_slices(data.shape, [None if b is None else ints(b, name) for b, name in zip(bounds, _NAMES, strict=False)])]

    def is_identity(self, inputs: Types, outputs: Sequence[TensorType]) -> bool:
        """True when the whole tensor is taken forwards."""
        steps = inputs[4] if len(inputs) > 4 else None
        forwards = steps is None or (steps.value is not None and bool((steps.value > 0).all()))
        return forwards and inputs[0] == outputs[0]


class Slice_1(Slice):
    """Slice with starts, ends and axes as attributes."""

    since = 1
    legacy_attributes = {"starts": "starts", "ends": "ends", "axes": "axes"}
    propagates_nan = True
    magnitude = "sum"


_NAMES = ("starts", "ends", "axes", "steps")


def _slices(dims: tuple[int, ...], bounds: Sequence[tuple[int, ...] | None]) -> tuple[slice, ...]:
    return _slices_of(dims, tuple(bounds))


@lru_cache(256)
def _slices_of(dims: tuple[int, ...], bounds: tuple[tuple[int, ...] | None, ...]) -> tuple[slice, ...]:
    """Kept, because inference and reference ask one after the other."""
    given = [*bounds, *[None] * (4 - len(bounds))]
    starts, ends, axes, steps = given[0] or (), given[1] or (), given[2], given[3]
    chosen = check_axes(range(len(starts)) if axes is None else axes, len(dims))
    strides = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(chosen) == len(strides):
        counts = f"{len(starts)} starts, {len(ends)} ends, {len(chosen)} axes and {len(strides)} steps"
        raise ShapeError(f"there are {counts}; accepted: as many of each")
    if 0 in strides:
        raise ShapeError(f"steps is {list(strides)}; accepted: positive and negative numbers")
    result = [slice(None)] * len(dims)
    for axis, start, end, step in zip(chosen, starts, ends, strides, strict=True):
        # ONNX clamps a start to the first element whatever the step; Python goes before it when the step is negative.
        result[axis] = slice(max(start, -dims[axis]), end, step)
    return tuple(result)
