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
        count, first, step = _count(start, limit, delta), _number(start), _number(delta)
        is_whole = isinstance(first, int)
        y: Array = np.arange(count, dtype=np.int64 if is_whole else np.float64)
        if is_whole and (first, step) == (0, 1):
            return y.astype(start.dtype, copy=False)
        with np.errstate(all="ignore"):
            y *= step
            y += first
            return y.astype(start.dtype, copy=False)


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
    return array.item() if array.dtype.kind in "iuf" else float(array.reshape(()))  # NumPy has no number of other types
