"""Range: https://onnx.ai/onnx/operators/onnx__Range.html."""

import math

import numpy as np

from dovetail.op import FLOATS, DType, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import scalar
from dovetail_ops_onnx._shapes import Movement, known
from dovetail_ops_onnx._types import Array


class Range(Movement):
    """The numbers start, start + delta, start + 2 * delta, ... before limit."""

    since = 11
    inputs = ("start: T", "limit: T", "delta: T")
    outputs = ("output: T",)
    types = {"T": FLOATS | {DType.INT16, DType.INT32, DType.INT64}}

    stash_type: int = 1

    def __post_init__(self) -> None:
        # References compute in float64, which is as wide as every type that may be asked for here.
        if self.stash_type not in (d.onnx for d in FLOATS):
            raise OperatorError(f"attribute 'stash_type' is {self.stash_type}; accepted: the number of a floating-point type")

    def infer(self, start: TensorType, limit: TensorType, delta: TensorType) -> TensorType:
        """A vector; all three inputs must be known."""
        for given, name in ((start, "start"), (limit, "limit"), (delta, "delta")):
            scalar(given, name)
        return start.with_shape((_count(known(start, "start"), known(limit, "limit"), known(delta, "delta")),))

    def reference(self, start: Array, limit: Array, delta: Array) -> Array:
        """start + i * delta, rounded once."""
        count, wide = _count(start, limit, delta), np.float64 if DType.of(start.dtype).is_float else np.int64
        first: Array = start.reshape(()).astype(wide)
        step: Array = delta.reshape(()).astype(wide)
        with np.errstate(all="ignore"):
            return np.asarray(first + np.arange(count, dtype=wide) * step).astype(start.dtype)


def _count(start: Array, limit: Array, delta: Array) -> int:
    first, last, step = _number(start), _number(limit), _number(delta)
    if step == 0 or not all(math.isfinite(v) for v in (first, last, step)):
        raise ShapeError(f"start, limit, delta are {first}, {last}, {step}; accepted: finite numbers, and a delta other than 0")
    if isinstance(first, int):
        # Whole numbers of any size: the quotient rounded up, without a detour through floating point.
        return max(-int((first - last) // step), 0)
    steps = (last - first) / step
    if not math.isfinite(steps):
        raise ShapeError(f"a range from {first} to {last} by {step} has too many elements")
    return max(math.ceil(steps), 0)


def _number(array: Array) -> int | float:
    value = array.reshape(())
    return float(value) if DType.of(array.dtype).is_float else int(value)
