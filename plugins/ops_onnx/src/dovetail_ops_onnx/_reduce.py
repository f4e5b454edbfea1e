"""The base of all reductions: axes, shape inference, and the frame of the reference."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dovetail.op import FLOATS, DType, GraphBuilder, Operator, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._shapes import check_axes, ints, known
from dovetail_ops_onnx._types import Array, Types
from dovetail_ops_onnx.cast import Cast

EXACT = 1 << 12
"""Elements that BLAS adds up without pairs of sums; more are off by 1e-6."""

LINES = frozenset({DType.FLOAT32, DType.FLOAT64})
_TURNED = LINES | {DType.INT8, DType.UINT8, DType.INT32, DType.INT64, DType.UINT32, DType.UINT64}
_MANY, _PART = 128, 1 << 15
"""Short lines that take less time when they are turned, and elements of so many lines that they stay in the cache."""
REDUCIBLE = FLOATS | {DType.INT32, DType.INT64, DType.UINT32, DType.UINT64}


class Reduction(Operator, ABC):
    """reduced = data reduced over `axes`: all of them when `axes` is left out or empty, none with `noop_with_empty_axes`.

    A subclass defines `reduce`. Floats narrower than float32 are reduced in float32; integers wrap.
    """

    inputs = ("data: T", "axes?: int64")
    outputs = ("reduced: T",)
    types = {"T": REDUCIBLE}
    legacy_attributes = {"axes": "axes"}
    ufunc: ClassVar[np.ufunc | None] = None
    """Joins two elements, by which `lines_step` reduces short lines."""
    turned: ClassVar[frozenset[DType]] = _TURNED
    """The types of elements of which it does."""
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
        """Number and length of the lines that `lines_step` reduces: over the last axes. None for other reductions."""
        first = data.rank - len(axes)
        if not axes or axes != tuple(range(first, data.rank)) or not data.size:
            return None
        length = math.prod(data.dims[first:])
        found, is_long = (data.size // length, length), data.dtype in LINES and self.takes_lines(length)
        return found if length > 1 and (is_long or self._turns(found, data.dtype)) else None

    def takes_lines(self, length: int) -> bool:
        """Whether `long_lines` reduces lines of so many elements, in less time than a ufunc's `reduce`."""
        return False

    def longest_turned(self, dtype: DType) -> int:
        """Up to which length lines take less time when they are turned."""
        return 16

    def lines_step(self, lines: Array, dst: Array) -> Callable[[], object]:
        """A call that reduces each row of `lines` [n, m], for numbers that `lines` gave, into dst [n]."""
        if self.ufunc is not None and lines.shape[0] >= _MANY and self._turns(lines.shape, DType.of(lines.dtype)):
            return partial(_reduce_turned, self.ufunc, lines, dst)
        return self.long_lines(lines, dst)

    def long_lines(self, lines: Array, dst: Array) -> Callable[[], object]:
        """`lines_step` for lengths that `takes_lines`."""
        raise NotImplementedError

    def _turns(self, lines: tuple[int, ...], dtype: DType) -> bool:
        is_short = lines[0] >= _MANY and lines[1] <= self.longest_turned(dtype)
        return self.ufunc is not None and is_short and dtype in self.turned

    @abstractmethod
    def reduce(self, x: Array, axes: tuple[int, ...]) -> Any:
        """`x`, not narrower than float32, reduced over `axes`, each kept with size 1."""

    def widened(self, g: GraphBuilder, data: str, wide: DType, reduced: Callable[[str], str]) -> str:
        """In a composition, `reduced` of the data in the data type `wide`, in their own again."""
        given = g.given(data)
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


def longest_turned_extreme(dtype: DType) -> int:
    """`longest_turned` of maxima and minima: `reduce` takes 14 ns a line of float32, `argmax` 60."""
    return 63 if dtype is DType.FLOAT32 else 16


def extremes_of_lines(places: Callable[..., object], lines: Array, dst: Array) -> Callable[[], object]:
    """The elements at `places`, which is `argmax` or `argmin` of lines: half the time of a ufunc's `reduce`. NaN wins."""
    found, starts = np.empty(len(lines), np.intp), np.arange(len(lines), dtype=np.intp) * lines.shape[1]
    flat = lines.reshape(-1)

    def run() -> None:
        places(1, found)
        np.add(found, starts, out=found)
        flat.take(found, out=dst, mode="clip")  # without a buffer, which the default needs

    return run


def _reduce_turned(ufunc: np.ufunc, lines: Array, dst: Array) -> None:
    """Some lines at a time are turned, so that they lie side by side: a ufunc starts anew for each line otherwise."""
    count, length = lines.shape
    step = min(_PART // length, count)
    columns = np.empty((length, step), lines.dtype)
    for start in range(0, count, step):
        part = lines[start : start + step]
        side_by_side = columns[:, : len(part)]
        np.copyto(side_by_side, part.T)
        ufunc.reduce(side_by_side, 0, dst.dtype, dst[start : start + step])
