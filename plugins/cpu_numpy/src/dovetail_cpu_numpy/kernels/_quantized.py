"""Shared by quantized operators: rounding to whole numbers that saturate, and the range of exact sums of float32."""

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import DType, TensorType
from dovetail_cpu_numpy.blocks import blocks
from dovetail_cpu_numpy.launch import Array, Launch, constant, copy, into, limit

__all__ = ["EIGHT_BITS", "EXACT", "Reach", "along", "requantized", "stored"]

EIGHT_BITS = frozenset({DType.INT8, DType.UINT8})

EXACT = 1 << 24
"""Integers up to here, and all sums of them on the way, are numbers of float32."""


def along(parameter: Array, shape: tuple[int, ...], axis: int) -> Array:
    """A scale or zero point, one or one for each place of the axis, as a view of a shape."""
    at = axis % len(shape) if shape else 0
    single = parameter.size == 1
    return np.broadcast_to(parameter.reshape([-1 if a == at and not single else 1 for a in range(len(shape))]), shape)


def stored(values: Array, zero: Array | None, dst: Array, *, is_number: bool = False) -> Iterator[Launch]:
    """dst = saturate(round(values) + zero), halves to even, for an integer type of up to 16 bits; NaN becomes 0.

    `is_number`: no value is NaN, so that none need be looked for.
    """
    bounds = np.iinfo(dst.dtype)
    yield into(np.rint, values, out=values)
    if zero is not None:
        yield into(np.add, values, zero, out=values)
    yield limit(values, bounds.min, bounds.max, values)
    yield partial(np.copyto, dst, values, "unsafe") if is_number else partial(_store, values, dst)


def _store(values: Array, dst: Array) -> None:
    # The conversion of NaN is undefined; the minimum is NaN where any is.
    if values.size and math.isnan(values.min()):
        np.copyto(values, 0, where=np.isnan(values))
    np.copyto(dst, values, casting="unsafe")


@dataclass(frozen=True, slots=True)
class Reach:
    """The least and the greatest difference between an 8-bit number and its zero point."""

    low: int
    high: int

    @staticmethod
    def of(dtype: DType, zero: Array | None) -> "Reach":
        """For the numbers of a type and the known zero point, by default 0."""
        bounds, point = np.iinfo(dtype.numpy), 0 if zero is None else int(zero.reshape(()))
        return Reach(int(bounds.min) - point, int(bounds.max) - point)

    @staticmethod
    def of_point(dtype: DType, zero: TensorType | None) -> "Reach":
        """The same for a zero point that may be unknown: any will do at an end of the range, as no other has larger sums."""
        unknown = zero is not None and zero.value is None
        return Reach(0, 255) if unknown else Reach.of(dtype, None if zero is None else zero.value)

    def sums(self, weights: Array) -> float:
        """The largest absolute value that a sum of products can have on the way; weights [terms, sums]."""
        if not weights.size:
            return 0
        positive, negative = (np.maximum(part, 0).sum(0, np.float64) for part in (weights, -weights))
        above = self.high * positive - self.low * negative
        below = self.high * negative - self.low * positive
        return float(max(above.max(), below.max()))


def requantized(
    total: Array, bias: Array | None, units: Sequence[Array], zero: Array, dst: Array, buffer: Array
) -> Iterator[Launch]:
    """dst = saturate(round((total + bias) * units[0] / units[1]) + zero), in float64 as the references have it.

    `total` and `dst` have one shape, to which the others broadcast; `buffer` is float64, of a block.
    """
    wide = [None if a is None else np.broadcast_to(a, dst.shape) for a in (bias, *units)]
    with np.errstate(all="ignore"):
        is_number = bool(np.isfinite(units[0] / units[1]).all())  # and so are sums, which are of whole numbers
    for block in blocks(dst.shape):
        part = dst[block]
        values = buffer[: part.size].reshape(part.shape)
        added, unit, scale = (None if a is None else a[block] for a in wide)
        yield copy(values, total[block])
        if added is not None:
            yield into(np.add, values, added, out=values)
        yield partial(np.multiply, values, unit, values)
        yield partial(np.divide, values, scale, values)
        yield from stored(values, constant(float(zero.reshape(())), values), part, is_number=is_number)
