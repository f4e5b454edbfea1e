"""GridSample: https://onnx.ai/onnx/operators/onnx__GridSample.html."""

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from dovetail.op import FLOATS, KernelSource, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._resample import cubic_weight
from dovetail_ops_onnx._types import BASIC, Array
from dovetail_ops_onnx._weighted_rows import Taps, adds_up_rows, channels_last, joined, weighted_planes, weighted_rows
from dovetail_ops_onnx._written import IntoResult

_PART = 1 << 14
"""Places that are computed at once: their coordinates and weights stay in the cache."""
_IMAGE = 1 << 18
"""Elements of images whose channels are brought together at once: they stay in the cache."""
_COPIED = 1 << 13
"""Elements of images that are looked up at once without that: their copy takes less time than calls for each image."""
_AREA = 6
"""Positions for each place up to which bringing channels together for machine code takes less than sums of planes."""
_PADDINGS = ("zeros", "border", "reflection")


class GridSample(Operator):
    """X [N, C, *spatial] looked up at the places of `grid` [N, *out, r], which are x first and go from -1 to 1.

    Between elements it is interpolated linearly or by cubic convolution, or the nearest is taken (halves go to the even one).
    """

    since = 20
    inputs = ("X: T1", "grid: T2")
    outputs = ("Y: T1",)
    types = {"T1": BASIC, "T2": FLOATS}
    kernels: ClassVar[tuple[KernelSource, ...]] = (IntoResult(),)
    align_corners: bool = False
    mode: str = "linear"
    padding_mode: str = "zeros"

    def __post_init__(self) -> None:
        _check(self.mode, "mode", ("linear", "nearest", "cubic"))
        _check(self.padding_mode, "padding_mode", _PADDINGS)

    def infer(self, X: TensorType, grid: TensorType) -> TensorType:
        """[N, C, *out]. Raises `ShapeError` for a grid of another batch or dimension."""
        r = X.rank - 2
        if r < 1 or grid.rank != X.rank or grid.dims[0] != X.dims[0] or grid.dims[-1] != r:
            raise ShapeError(f"X is {X}, 'grid' {grid}; accepted: [N, C, *spatial] and [N, *out, number of spatial dimensions]")
        if self.mode != "nearest" and not (X.dtype.is_float or X.dtype.is_integer):
            raise OperatorError(f"X is {X}; mode {self.mode!r} accepts real numbers only, 'nearest' takes every type")
        return X.with_shape((*X.dims[:2], *grid.dims[1:-1]))

    def reference(self, X: Array, grid: Array) -> Array:
        """A weighted sum over the elements round each place."""
        y = np.empty((*X.shape[:2], *grid.shape[1:-1]), X.dtype)
        self.write(y, X, grid)
        return y

    def write(self, dst: Array, X: Array, grid: Array) -> None:
        """The same into dst."""
        sizes = X.shape[2:]
        if not dst.size or not math.prod(sizes):
            dst[...] = "" if X.dtype == object else 0
            return
        places = wide(grid).reshape(len(X), -1, len(sizes))
        with np.errstate(all="ignore"):
            if self.mode == "nearest":
                self._nearest(dst.reshape(*X.shape[:2], -1), X.reshape(*X.shape[:2], -1), places, sizes)
                return
            inner = np.result_type(wide(X).dtype, np.float32) if X.dtype.kind in "fV" else np.dtype(np.float64)
            x = X.astype(inner, copy=False)
            y = (dst if dst.dtype == inner else np.empty(dst.shape, inner)).reshape(*X.shape[:2], -1)
            if self.mode == "linear":
                self._sample(y, x, places, self._between)
            # The fast way counts elements outside as 0 times one inside, which is NaN where that one is not finite.
            if self.mode != "linear" or not np.isfinite(np.vdot(y, y)):
                self._sample(y, x, places, self._joined, self._border)
            if dst.dtype != inner:
                dst[...] = rounded(y, X.dtype).reshape(dst.shape)

    def _nearest(self, y: Array, x: Array, places: Array, sizes: tuple[int, ...]) -> None:
        """y [N, C, n]: the elements of x [N, C, positions] nearest to places [N, n, axes]."""
        for planes, given, dst in zip(x, places, y, strict=True):
            index, weight = joined([self._nearest_tap(*axis) for axis in zip(given.T[::-1], sizes, strict=True)], sizes)
            dst[:] = planes.take(index[0], 1)
            if not weight.all():
                dst[:, ~weight[0]] = "" if x.dtype == object else 0

    def _nearest_tap(self, given: Array, size: int) -> Taps:
        """The element of an axis nearest to each place, and whether it is inside."""
        at = np.rint(self._coordinates(given, size))
        if self.padding_mode == "reflection":
            at = self._reflected(at, size)
        inside = (at >= 0) & (at < size) if self._border else np.ones(len(at), bool)
        return np.clip(at, 0, size - 1).astype(np.intp)[None], inside[None]

    def _sample(self, y: Array, x: Array, places: Array, taps: Callable[[Array, tuple[int, ...]], Taps], border: int = 0) -> None:
        """y [N, C, n]: x [N, C, *spatial] at places [N, n, axes], whose elements and weights `taps` gives."""
        n, channels, area = places.shape[1], x.shape[1], math.prod(size + 2 * border for size in x.shape[2:])
        # Linear mode has few taps, for which bringing channels together takes most of the time, but for machine code.
        by_rows = self.mode != "linear" or (area <= _AREA * n and adds_up_rows(x.dtype, channels))
        bring, sums = (channels_last, lambda rows, near: weighted_rows(rows, near).T) if by_rows else (_planes, weighted_planes)
        at_once = _COPIED if bring is _planes and channels > 1 else _IMAGE
        some, few = max(1, _PART // n), max(1, at_once // (channels * area))
        for image in range(0, len(x), some):
            whole = places[image : image + some].reshape(-1, places.shape[2])
            source = None
            for start in range(0, len(whole), _PART):
                index, weight = taps(whole[start : start + _PART], x.shape[2:])
                if n > _PART:
                    source = bring(x[image : image + 1], border) if source is None else source
                    y[image, :, start : start + _PART] = sums(source, (index, weight))
                    continue
                for first in range(image, min(image + some, len(x)), few):
                    own = slice(first, min(first + few, image + some))
                    near, part = bring(x[own], border), slice((first - image) * n, (own.stop - image) * n)
                    found = sums(near, (_of_images(index[:, part], n, area), weight[:, part]))
                    y[own] = found.reshape(channels, -1, n).swapaxes(0, 1)

    def _between(self, places: Array, sizes: tuple[int, ...]) -> Taps:
        """As `_joined` without a border, for mode linear: elements outside have the weight 0."""
        taps = [self._pair(given, size) for given, size in zip(places.T[::-1], sizes, strict=True)]
        return joined(taps, sizes)

    def _pair(self, given: Array, size: int) -> Taps:
        """The two elements of an axis round each place, and their weights, in few passes in the type of the grid."""
        at = self._coordinates(given, size)
        if self.padding_mode == "reflection":
            at = self._reflected(at, size)
        np.clip(at, *((-2, size + 1) if self._border else (0, size - 1)), out=at)
        first = np.floor(at)
        index, weight = np.empty((2, len(at)), np.int32), np.empty((2, len(at)), at.dtype)
        index[0] = first
        np.add(index[0], 1, index[1])
        np.subtract(at, first, weight[1])
        np.subtract(1, weight[1], weight[0])
        if self._border:
            np.putmask(weight, index.view(np.uint32) >= size, 0)  # as unsigned numbers those below 0 are large, too
        return np.clip(index, 0, size - 1, out=index), weight

    @property
    def _border(self) -> int:
        """Zeros on each side of the axes, by which elements outside are counted."""
        return int(self.padding_mode == "zeros")

    def _joined(self, places: Array, sizes: tuple[int, ...]) -> Taps:
        """The elements of the spatial axes, with their border, for each of places [n, axes], and their weights."""
        taps = [self._taps(given, size) for given, size in zip(places.T[::-1], sizes, strict=True)]
        return joined(taps, [size + 2 * self._border for size in sizes])

    def _taps(self, given: Array, size: int) -> Taps:
        """The elements of an axis, with its border, for each place, and their weights."""
        at = np.clip(self._coordinates(given, size).astype(np.float64), -(2.0**40), 2.0**40)
        if self.mode == "linear":  # cubic brings in each tap alone, as PyTorch and onnxruntime do: along a border it matters
            low, high = (0.0, size - 1.0) if self.align_corners else (-0.5, size - 0.5)
            at = np.where((at < low) | (at > high), self._inside(at, size), at)
        first = np.floor(at)
        t = at - first
        if self.mode == "linear":
            return self._elements(np.stack((first, first + 1)), size), np.stack((1 - t, t))
        steps = np.arange(-1, 3)[:, None]
        return self._elements(first + steps, size), cubic_weight(np.abs(t - steps))

    def _coordinates(self, given: Array, size: int) -> Array:
        """The places in elements of an axis, from -1 to 1 before; NaN is -1."""
        at = given + 1
        if self.align_corners:
            at *= 0.5
            at *= size - 1
        else:
            at *= size
            at -= 1
            at *= 0.5
        if np.isnan(np.vdot(at, at)):
            at[np.isnan(at)] = -1
        return at

    def _reflected(self, at: Array, size: int) -> Array:
        """Places brought back into the axis by reflections, unless all are inside."""
        low, high = (0.0, size - 1.0) if self.align_corners else (-0.5, size - 0.5)
        if ((at >= low) & (at <= high)).all():
            return at
        far = np.clip(at.astype(np.float64), -(2.0**40), 2.0**40)
        return np.where((far < low) | (far > high), self._inside(far, size), far).astype(at.dtype)

    def _inside(self, at: Array, size: int) -> Array:
        """Places brought back into the axis, as `padding_mode` says."""
        if self.padding_mode == "border":
            return np.clip(at, 0, size - 1)
        if self.padding_mode == "zeros":
            return at
        low, high = (0.0, size - 1.0) if self.align_corners else (-0.5, size - 0.5)
        if high == low:
            return np.zeros_like(at)
        away = np.mod(at - low, 2 * (high - low))
        return low + np.where(away > high - low, 2 * (high - low) - away, away)

    def _elements(self, at: Array, size: int) -> Array:
        if self.padding_mode == "zeros":
            return np.clip(at, -1, size).astype(np.int64) + 1
        outside = (at < 0) | (at > size - 1)
        at = np.where(outside, self._inside(at, size), at) if outside.any() else at
        return np.clip(at, 0, size - 1).astype(np.int64)


class GridSample_16(GridSample):
    """The same for images, with the modes under their older names."""

    since = 16
    mode: str = "bilinear"

    def __post_init__(self) -> None:
        _check(self.mode, "mode", ("bilinear", "nearest", "bicubic"))
        _check(self.padding_mode, "padding_mode", _PADDINGS)

    def infer(self, X: TensorType, grid: TensorType) -> TensorType:
        """[N, C, H, W]."""
        return self._newer().infer(X, grid)

    def write(self, dst: Array, X: Array, grid: Array) -> None:
        """As the newer version."""
        self._newer().write(dst, X, grid)

    def _newer(self) -> GridSample:
        return GridSample(align_corners=self.align_corners, mode=self.mode.removeprefix("bi"), padding_mode=self.padding_mode)


def _planes(x: Array, border: int) -> Array:
    """The images of x [N, C, *spatial] as [C, N * positions], with a border of zeros round each."""
    if border:
        x = np.pad(x, ((0, 0), (0, 0), *[(border, border)] * (x.ndim - 2)))
    return x.swapaxes(0, 1).reshape(x.shape[1], -1)


def _of_images(index: Array, n: int, area: int) -> Array:
    """The index into the rows of images of so many positions, each of which has `n` places."""
    images = index.shape[1] // n
    return index if images < 2 else index + np.repeat(np.arange(images) * area, n)


def _check(value: str, name: str, accepted: tuple[str, ...]) -> None:
    if value not in accepted:
        raise OperatorError(f"attribute {name!r} is {value!r}; accepted: {', '.join(accepted)}")
