"""Arrays resampled along axes, by the taps and weights of `_resample`."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._resample import Axis, Floats, Sampling
from dovetail_ops_onnx._types import Array

PART = 1 << 16
"""Elements that are computed at once: few enough to stay in the cache and to need no fresh memory from the operating system.
48 planes of 64 x 64 made twice as large take 2.2 ms so, and 8.5 ms in one (linear, integers, one thread). Products, which
floats are computed in, pass over memory less often, and take longest for their calls: parts of 16 times as many."""

ROWS, LARGE, BLOCK = 64, 1 << 14, 16
"""For so many numbers of each element of an axis, and in the result, products with matrices of so many rows take less time
than sums of taps: 64 planes of 56 x 56 made twice as large 0.56 ms for 2.0 (linear), and 0.62 for 4.0 (cubic)."""

_LONG = 4
"""So many parts in an item of whole numbers, of which each part then takes rows: 3 channels of 720 x 1280 made 640 x 640
10.0 ms of CPU for 14.6, as fresh memory for the whole of a channel costs most. Smaller items take as long as before."""


class _Line:
    """An axis, with the elements and weights that `Sampling.taps` gives for it, and matrices of these."""

    def __init__(self, axis: int, index: NDArray[np.int64], weights: Floats | None) -> None:
        self.axis, self.index, self.weights = axis, index, weights
        self._blocks: dict[np.dtype[Any], list[tuple[slice, slice, Array]]] = {}

    def blocks(self, dtype: np.dtype[Any]) -> list[tuple[slice, slice, Array]]:
        """For each `BLOCK` output elements: these, the input elements that they read, and their weights [outputs, inputs]."""
        if dtype not in self._blocks:
            self._blocks[dtype] = list(self._made(dtype))
        return self._blocks[dtype]

    def pieces(self, count: int) -> Iterator[tuple[slice, slice, "_Line"]]:
        """For each `count` output elements: these, the input elements that they read, and the axis of these alone."""
        for start in range(0, len(self.index), count):
            part = slice(start, start + count)
            index = self.index[part]
            first, weights = int(index.min()), None if self.weights is None else self.weights[part]
            yield part, slice(first, int(index.max()) + 1), _Line(self.axis, index - first, weights)

    def _made(self, dtype: np.dtype[Any]) -> Iterator[tuple[slice, slice, Array]]:
        assert self.weights is not None
        index, out = self.index, len(self.index)
        starts = range(0, out, BLOCK)
        first, last = np.minimum.reduceat(index.min(axis=1), starts), np.maximum.reduceat(index.max(axis=1), starts) + 1
        matrix, places = np.zeros((out, (last - first).max()), dtype), index - np.repeat(first, BLOCK)[:out, None]
        for t in range(index.shape[1]):
            matrix[np.arange(out), places[:, t]] += self.weights[:, t].astype(dtype)
        for start, begin, end in zip(starts, first.tolist(), last.tolist(), strict=True):
            part = slice(start, start + BLOCK)
            yield part, slice(begin, end), matrix[part, : end - begin]


def resample(X: Array, axes: Sequence[Axis], sampling: Sampling) -> Array:
    """X resampled along each of `axes`. Floats narrower than float32 are computed in float32, integers in float64 and cut off."""
    return _resampler(X.ndim, tuple(axes), sampling)(X)


@functools.lru_cache(64)
def _resampler(rank: int, axes: tuple[Axis, ...], sampling: Sampling) -> Callable[[Array], Array]:
    """The function for arrays of this rank, with elements and weights; kept, as they took most of the time of small results."""
    if not axes:
        return np.copy
    first = min(a.axis for a in axes)
    lines = [_Line(a.axis - first + 1, *sampling.taps(a)) for a in axes]
    outside = np.zeros((1,) * rank, bool)
    for a in axes:
        if (lost := sampling.outside(a)).any():
            outside = outside | lost.reshape(_along(a.axis, rank))
    any_outside = bool(outside.any())

    def resampled(X: Array) -> Array:
        rows = X.reshape(math.prod(X.shape[:first]), *X.shape[first:])
        with np.errstate(all="ignore"):
            y = _in_parts(rows, lines)
        y = y.reshape(*X.shape[:first], *y.shape[1:])
        return np.where(outside, np.asarray(sampling.extrapolation, X.dtype), y) if any_outside else y

    return resampled


def _in_parts(rows: Array, lines: Sequence[_Line]) -> Array:
    """`_resampled`, of so many items of the first axis at a time that intermediate results stay small."""
    outs = {line.axis: len(line.index) for line in lines}
    shape = tuple(outs.get(i, d) for i, d in enumerate(rows.shape))
    part = PART << 4 if DType.of(rows.dtype).is_float else PART
    if math.prod(shape) <= part or all(line.weights is None for line in lines):
        return _resampled(rows, lines)
    y, step = np.empty(shape, rows.dtype), max(1, part // math.prod(shape[1:]))
    if step == 1 and lines[0].axis == 1 and not DType.of(rows.dtype).is_float and rows[0].size > _LONG * part:
        count = max(1, part // max(math.prod(a.shape[2:]) for a in (rows, y)))
        for out, read, line in lines[0].pieces(count):
            for item, result in zip(rows, y, strict=True):
                result[out] = _resampled(item[None, read], [line, *lines[1:]])[0]
        return y
    for start in range(0, len(rows), step):
        y[start : start + step] = _resampled(rows[start : start + step], lines)
    return y


def _resampled(X: Array, lines: Sequence[_Line]) -> Array:
    """X resampled along axes, in its own data type; X itself if there are none."""
    dtype = DType.of(X.dtype)
    if all(line.weights is None for line in lines):
        y = X
    else:
        y = X.astype(np.float32 if dtype.is_float and dtype is not DType.FLOAT64 else np.float64, order="C")
    # In a product 0 times infinity is NaN, and of integers, which are cut off, the last digit counts.
    in_products = dtype.is_float and y is not X and math.isfinite(np.vdot(y, y))
    for line in lines:
        rows = y.size // max(1, y.shape[line.axis])
        if line.weights is None:
            y = np.take(y, line.index[:, 0], axis=line.axis)
        elif in_products and rows >= ROWS and rows * len(line.index) >= LARGE:
            y = _by_products(y, line)
        else:
            y = _by_taps(y, line.axis, line.index, line.weights)
    return rounded(y, X.dtype)


def _by_taps(y: Array, axis: int, index: NDArray[np.int64], weights: Floats) -> Array:
    """The sum of the elements of each tap times their weights."""
    total = None
    for t in range(index.shape[1]):
        term = np.take(y, index[:, t], axis=axis)
        term *= weights[:, t].astype(y.dtype).reshape(_along(axis, y.ndim))
        total = term if total is None else np.add(total, term, out=total)
    assert total is not None  # every mode has taps
    return total


def _by_products(y: Array, line: _Line) -> Array:
    """The same for finite numbers, `BLOCK` output elements at a time: all input elements that they read times a matrix.

    Many small products: large ones BLAS shares among threads, for which it waits milliseconds where a core is busy.
    """
    axis, out = line.axis, len(line.index)
    is_last = axis == y.ndim - 1
    made = np.empty((*y.shape[:axis], out, *y.shape[axis + 1 :]), y.dtype)
    # The axis is one of the last two, those after it as one.
    src, dst = (y, made) if is_last else (a.reshape(*a.shape[: axis + 1], -1) for a in (y, made))
    for part, read, factor in line.blocks(y.dtype):
        if is_last:
            np.matmul(src[..., read], np.ascontiguousarray(factor.T), out=dst[..., part])
        else:
            np.matmul(factor, src[..., read, :], out=dst[..., part, :])
    return made


def _along(axis: int, rank: int) -> list[int]:
    """The shape that a vector along an axis takes to be broadcast."""
    return [-1 if i == axis else 1 for i in range(rank)]
