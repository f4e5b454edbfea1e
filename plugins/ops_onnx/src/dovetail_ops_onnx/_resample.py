"""Resampling along axes, for Resize and Upsample: coordinates, taps and weights. Formulas: ONNX's page of Resize."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.op import DType, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array

Floats = NDArray[np.floating[Any]]

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)
Taps = tuple[int, NDArray[np.int64], Floats | None]
"""An axis, with the elements and weights that `Sampling.taps` gives for it."""

PART = 1 << 16
"""Elements that are computed at once: few enough to stay in the cache and to need no fresh memory from the operating system.
48 planes of 64 x 64 made twice as large take 2.2 ms so, and 8.5 ms in one (linear, integers, one thread). Products, which
floats are computed in, pass over memory less often, and take longest for their calls: parts of 16 times as many."""

ROWS, LARGE, BLOCK = 64, 1 << 14, 16
"""For so many numbers of each element of an axis, and in the result, products with matrices of so many rows take less time
than sums of taps: 64 planes of 56 x 56 made twice as large 0.56 ms for 2.0 (linear), and 0.62 for 4.0 (cubic)."""

NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")
"""`simple` is what versions before 11 do: floor, and ceil where the axis shrinks."""


@dataclass(frozen=True)
class Axis:
    """One axis to resample: `scale` is the one given, which need not be out / size; `roi` is the region to crop, 0 to 1."""

    axis: int
    size: int
    out: int
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class Sampling:
    """How to sample: the attributes of Resize that do not depend on the axis."""

    mode: str
    coordinate: str
    nearest: str
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0

    def taps(self, a: Axis) -> tuple[NDArray[np.int64], Floats | None]:
        """The input elements [out, taps] of which each output element of an axis is made, and their weights [out, taps].

        No weights, and one tap, in mode nearest.
        """
        x = self._places(a)
        with np.errstate(all="ignore"):
            return (_nearest(a, x, self.nearest), None) if self.mode == "nearest" else _weighted(a, x, self)

    def outside(self, a: Axis) -> NDArray[np.bool_]:
        """The output elements [out] of an axis that are outside the input: they get the extrapolation value."""
        x = self._places(a)
        return ((x < 0) | (x > a.size - 1)) & (self.coordinate == "tf_crop_and_resize")

    def _places(self, a: Axis) -> Floats:
        # Which element is nearest turns on the last bit: in float32 it is the one that ONNX's and other runtimes take.
        dtype = np.float32 if self.mode == "nearest" else np.float64
        with np.errstate(all="ignore"):
            return _coordinates(a, self.coordinate, np.arange(a.out, dtype=dtype))


def checked_scale(scale: float) -> float:
    """`scale`. Raises `OperatorError` unless it is a finite number above 0."""
    if not (math.isfinite(scale) and scale > 0):
        raise OperatorError(f"a scale is {scale}; accepted: a finite number above 0")
    return scale


def scaled_size(size: int, scale: float, extent: float = 1.0) -> int:
    """floor(size * extent * scale), computed in float32 as ONNX's shape inference does."""
    with np.errstate(over="ignore"):
        exact = np.float32(size) * np.float32(extent) * np.float32(checked_scale(scale))
    if not exact < 2.0**62:
        raise OperatorError(f"a scale is {scale} for an axis of size {size}; the output would have {exact:g} elements")
    return max(0, math.floor(exact))


def check_samples(X: TensorType, axes: Sequence[Axis], mode: str) -> None:
    """Raise unless X has something to sample wherever output is wanted, and a type that `mode` can interpolate."""
    if mode != "nearest" and not (X.dtype.is_float or X.dtype.is_integer):
        raise OperatorError(f"X is {X}; mode {mode!r} accepts real numbers only, 'nearest' takes every type")
    for a in axes:
        if a.size == 0 and a.out:
            raise ShapeError(f"X is {X}: axis {a.axis} has no elements to make {a.out} from")


def resample(X: Array, axes: Sequence[Axis], sampling: Sampling) -> Array:
    """X resampled along each of `axes`. Floats narrower than float32 are computed in float32, integers in float64 and cut off."""
    if not axes:
        return X.copy()
    first = min(a.axis for a in axes)
    rows = X.reshape(math.prod(X.shape[:first]), *X.shape[first:])
    with np.errstate(all="ignore"):
        y = _in_parts(rows, [(a.axis - first + 1, *sampling.taps(a)) for a in axes])
    y = y.reshape(*X.shape[:first], *y.shape[1:])
    outside = np.zeros((1,) * X.ndim, bool)
    for a in axes:
        if (lost := sampling.outside(a)).any():
            outside = outside | lost.reshape(_along(a.axis, X.ndim))
    return np.where(outside, np.asarray(sampling.extrapolation, X.dtype), y) if outside.any() else y


def _in_parts(rows: Array, taps: Sequence[Taps]) -> Array:
    """`_resampled`, of so many items of the first axis at a time that intermediate results stay small."""
    outs = {axis: len(index) for axis, index, _ in taps}
    shape = tuple(outs.get(i, d) for i, d in enumerate(rows.shape))
    part = PART << 4 if DType.of(rows.dtype).is_float else PART
    if math.prod(shape) <= part or all(weights is None for _, _, weights in taps):
        return _resampled(rows, taps)
    y, step = np.empty(shape, rows.dtype), max(1, part // math.prod(shape[1:]))
    for start in range(0, len(rows), step):
        y[start : start + step] = _resampled(rows[start : start + step], taps)
    return y


def _resampled(X: Array, taps: Sequence[Taps]) -> Array:
    """X resampled along axes, in its own data type; X itself if there are none."""
    dtype = DType.of(X.dtype)
    if all(weights is None for _, _, weights in taps):
        y = X
    else:
        y = X.astype(np.float32 if dtype.is_float and dtype is not DType.FLOAT64 else np.float64, order="C")
    # In a product 0 times infinity is NaN, and of integers, which are cut off, the last digit counts.
    in_products = dtype.is_float and y is not X and math.isfinite(np.vdot(y, y))
    for axis, index, weights in taps:
        rows = y.size // max(1, y.shape[axis])
        if weights is None:
            y = np.take(y, index[:, 0], axis=axis)
        elif in_products and rows >= ROWS and rows * len(index) >= LARGE:
            y = _by_products(y, axis, index, weights)
        else:
            y = _by_taps(y, axis, index, weights)
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


def _by_products(y: Array, axis: int, index: NDArray[np.int64], weights: Floats) -> Array:
    """The same for finite numbers, `BLOCK` output elements at a time: all input elements that they read times a matrix.

    Many small products: large ones BLAS shares among threads, for which it waits milliseconds where a core is busy.
    """
    out = len(index)
    starts = range(0, out, BLOCK)
    first, last = np.minimum.reduceat(index.min(axis=1), starts), np.maximum.reduceat(index.max(axis=1), starts) + 1
    matrix, places = np.zeros((out, (last - first).max()), y.dtype), index - np.repeat(first, BLOCK)[:out, None]
    for t in range(index.shape[1]):
        matrix[np.arange(out), places[:, t]] += weights[:, t].astype(y.dtype)
    is_last = axis == y.ndim - 1
    made = np.empty((*y.shape[:axis], out, *y.shape[axis + 1 :]), y.dtype)
    # The axis is one of the last two, those after it as one.
    src, dst = (y, made) if is_last else (a.reshape(*a.shape[: axis + 1], -1) for a in (y, made))
    for start, begin, end in zip(starts, first.tolist(), last.tolist(), strict=True):
        part, factor = slice(start, start + BLOCK), matrix[start : start + BLOCK, : end - begin]
        if is_last:
            np.matmul(src[..., begin:end], np.ascontiguousarray(factor.T), out=dst[..., part])
        else:
            np.matmul(factor, src[..., begin:end, :], out=dst[..., part, :])
    return made


def _along(axis: int, rank: int) -> list[int]:
    """The shape that a vector along an axis takes to be broadcast."""
    return [-1 if i == axis else 1 for i in range(rank)]


def _coordinates(a: Axis, mode: str, x: Floats) -> Floats:
    """For each output position `x` its place on the input axis.

    With a scale that gives no whole number, align_corners takes scale * size as the output's length: ONNX's node tests want that.
    """
    length = x.dtype.type(a.scale) * x.dtype.type(a.size)
    if mode == "asymmetric":
        # The ratio of two whole sizes is not rounded: with 7 elements made 2, element 1 is at 3.5, where rounding decides.
        whole = a.size and a.scale == a.out / a.size
        return (x.astype(np.float64) * a.size / a.out).astype(x.dtype) if whole else x / a.scale
    if mode == "align_corners":
        return x * (a.size - 1) / (length - 1) if length != 1 else np.zeros_like(x)
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / a.scale
    if mode == "pytorch_half_pixel" and a.out <= 1:
        return np.zeros_like(x)
    if mode == "tf_crop_and_resize":
        start, end = a.roi
        if a.out <= 1:
            return np.full_like(x, 0.5 * (start + end) * (a.size - 1))
        return start * (a.size - 1) + x * (end - start) * (a.size - 1) / (a.out - 1)
    offset = a.size / 2 * (1 - a.out / length) if mode == "half_pixel_symmetric" and length else 0.0
    return offset + (x + 0.5) / a.scale - 0.5


def _nearest(a: Axis, x: Floats, mode: str) -> NDArray[np.int64]:
    if mode == "simple":
        mode = "ceil" if a.scale < 1 else "floor"
    if mode == "round_prefer_floor":
        x = np.ceil(x - 0.5)
    elif mode == "round_prefer_ceil":
        x = np.floor(x + 0.5)
    else:
        x = np.floor(x) if mode == "floor" else np.ceil(x)
    return np.clip(x, 0, max(0, a.size - 1)).astype(np.int64)[:, None]


def _weighted(a: Axis, x: Floats, sampling: Sampling) -> tuple[NDArray[np.int64], Floats]:
    """Input elements near x, the border repeated, and the filter's values at their distances."""
    shrink = min(1.0, a.scale) if sampling.antialias else 1.0
    reach = (2 if sampling.mode == "cubic" else 1) / shrink
    taps = np.floor(x)[:, None] + np.arange(1 - math.ceil(reach), math.ceil(reach) + 1) if a.out else np.zeros((0, 1))
    distance = np.abs(taps - x[:, None]) * shrink
    weights = cubic_weight(distance, sampling.cubic_a) if sampling.mode == "cubic" else np.maximum(0, 1 - distance)
    if sampling.exclude_outside:
        weights = np.where((taps < 0) | (taps >= a.size), 0, weights)
    if sampling.exclude_outside or sampling.antialias:
        weights = weights / np.sum(weights, axis=1, keepdims=True)
    return np.clip(taps, 0, max(0, a.size - 1)).astype(np.int64), weights


def cubic_weight(d: Floats, a: float = -0.75) -> Floats:
    """Keys' cubic convolution kernel (1981) at the distance d >= 0."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def resampled_type(x: TensorType, axes: Sequence[Axis]) -> TensorType:
    """The type of `x` after resampling along the axes."""
    outs = {a.axis: a.out for a in axes}
    return x.with_shape(tuple(outs.get(i, d) for i, d in enumerate(x.dims)))


def resampling_flops(mode: str, y: TensorType) -> int:
    """The floating-point operations for a result of this type."""
    return 0 if mode == "nearest" else y.size * 2 * y.rank * (4 if mode == "cubic" else 2)
