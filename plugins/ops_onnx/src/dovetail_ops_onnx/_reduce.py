"""The base of all reductions: axes, shape inference, and the frame of the reference."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dovetail.op import FLOATS, DType, GraphBuilder, Operator, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._shapes import check_axes, ints, known
from dovetail_ops_onnx._types import Array, Types
from dovetail_ops_onnx.cast import Cast

EXACT = 1 << 12
"""Elements that BLAS adds up without pairs of sums; more are off by 1e-6."""

_FEW_LEFT = range(1, 5)
"""Remainders of lengths by 16 that leave `reduce` few elements to take one by one."""

LINES = frozenset({DType.FLOAT32, DType.FLOAT64})
REDUCIBLE = FLOATS | {DType.INT32, DType.INT64, DType.UINT32, DType.UINT64}


class Reduction(Operator, ABC):
    """reduced = data reduced over `axes`: all of them when `axes` is left out or empty, none with `noop_with_empty_axes`.

    A subclass defines `reduce`. Floats narrower than float32 are reduced in float32; integers wrap.
    """

    inputs = ("data: T", "axes?: int64")
    outputs = ("reduced: T",)
    types = {"T": REDUCIBLE}
    legacy_attributes = {"axes": "axes"}
    keepdims: bool = True
    noop_with_empty_axes: bool = False

    def reduced_axes(self, rank: int, axes: Array | None) -> tuple[int, ...]:
        """The axes to reduce, counted from the front, in order. Raises `ShapeError` for one out of range."""
        if axes is None or axes.size == 0:
            return () if self.noop_with_empty_axes else tuple(range(rank))
        return tuple(sorted(check_axes(ints(axes, "axes"), rank)))

    def infer(self, data: TensorType, axes: TensorType | None = None) -> TensorType:
        chosen = self.reduced_axes(data.rank, known(axes, "axes") if axes is not None and axes.size else None)
        return data.with_shape(_reduced_shape(data.dims, chosen, self.keepdims))

    def reference(self, data: Array, axes: Array | None = None) -> Array:
        chosen = self.reduced_axes(data.ndim, axes)
        with np.errstate(all="ignore"):
            y = self.reduce(wide(data), chosen)
        return rounded(y, data.dtype).reshape(_reduced_shape(data.shape, chosen, self.keepdims))

    def lines(self, data: TensorType, axes: tuple[int, ...]) -> tuple[int, int] | None:
        """Number and length of the lines that `lines_step` reduces: of floats, over the last axes. None for other reductions."""
        first = data.rank - len(axes)
        if data.dtype not in LINES or not axes or axes != tuple(range(first, data.rank)) or not data.size:
            return None
        length = math.prod(data.dims[first:])
        return (data.size // length, length) if length > 1 and self.takes_lines(length) else None

    def takes_lines(self, length: int) -> bool:
        """Whether `lines_step` reduces lines of so many elements, in less time than a ufunc's `reduce`."""
        return False

    def lines_step(self, lines: Array, dst: Array) -> Callable[[], object]:
        """A call that reduces each row of `lines` [n, m], for numbers that `lines` gave, into dst [n]."""
        raise NotImplementedError

    @abstractmethod
    def reduce(self, x: Array, axes: tuple[int, ...]) -> Any:
        """`x`, not narrower than float32, reduced over `axes`, each kept with size 1."""

    def widened(self, g: GraphBuilder, data: str, wide: DType, reduced: Callable[[str], str]) -> str:
        """In a composition, `reduced` of the data in the data type `wide`, in their own again."""
        given = g.type_of(data)
        assert given is not None
        if given.dtype is wide:
            return reduced(data)
        name: str = g.node(Cast(to=given.dtype), reduced(g.node(Cast(to=wide), data)))
        return name

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        assert inputs[0] is not None
        return inputs[0].size


def _reduced_shape(dims: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return tuple([1 if a in axes else d for a, d in enumerate(dims)])
    return tuple([d for a, d in enumerate(dims) if a not in axes])


def parts_of_line(length: int) -> int:
    """The number of equal parts, of `EXACT` elements or fewer, in which `sums_of_lines` adds up a line; 0 where none is found."""
    least = -(-length // EXACT)
    return next((parts for parts in range(least, least + 64) if length % parts == 0), 0)


def sums_of_lines(lines: Array, dst: Array) -> Callable[[], object]:
    """Products with ones, a third of the time of `np.add.reduce`: BLAS adds up each row, on one thread."""
    count, length = lines.shape
    if (parts := parts_of_line(length)) > 1:
        sums = np.empty((count, parts), lines.dtype)
        first, then = sums_of_lines(lines.reshape(count * parts, -1), sums.reshape(-1)), sums_of_lines(sums, dst)

        def run() -> None:
            first()
            then()

        return run
    return partial(np.matmul, lines.reshape(count, 1, length), np.ones((length, 1), lines.dtype), dst.reshape(count, 1, 1))


def extremes_of_lines(places: Callable[..., object], ufunc: np.ufunc, lines: Array, dst: Array) -> Callable[[], object]:
    """The elements at `places`, which is `argmax` or `argmin` of lines: half the time of the ufunc's `reduce`. NaN wins.

    Of planes of 7 * 7 it is twice the time: `reduce` takes a first element, then 16 at once and the rest one by one.
    """
    length = lines.shape[1]
    if lines.dtype == np.float32 and 16 < length < 64 and length % 16 in _FEW_LEFT:
        return partial(ufunc.reduce, lines, 1, None, dst)
    found, starts = np.empty(len(lines), np.intp), np.arange(len(lines), dtype=np.intp) * length
    flat = lines.reshape(-1)

    def run() -> None:
        places(1, found)
        np.add(found, starts, out=found)
        flat.take(found, out=dst, mode="clip")  # without a buffer, which the default needs

    return run
