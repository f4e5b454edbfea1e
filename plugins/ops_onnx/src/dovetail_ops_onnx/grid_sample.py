"""GridSample: https://onnx.ai/onnx/operators/onnx__GridSample.html."""

import math

import numpy as np

from dovetail.op import FLOATS, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._resample import cubic_weight
from dovetail_ops_onnx._types import BASIC, Array
from dovetail_ops_onnx._weighted_rows import Taps, channels_last, joined, weighted_rows

_PART = 1 << 13
"""Places that are computed at once: their coordinates and weights stay in the cache."""
_PADDINGS = ("zeros", "border", "reflection")


class GridSample(Operator):
    """X [N, C, *spatial] looked up at the places of `grid` [N, *out, r], which are x first and go from -1 to 1.

    Between elements it is interpolated linearly or by cubic convolution, or the nearest is taken (halves go to the even one).
    """

    since = 20
    inputs = ("X: T1", "grid: T2")
    outputs = ("Y: T1",)
    types = {"T1": BASIC, "T2": FLOATS}
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
        sizes = X.shape[2:]
        shape = (*X.shape[:2], *grid.shape[1:-1])
        if not math.prod(shape) or not math.prod(sizes):
            return np.full(shape, "", object) if X.dtype == object else np.zeros(shape, X.dtype)
        places = wide(grid).reshape(-1, len(sizes))
        parts = [slice(start, start + _PART) for start in range(0, len(places), _PART)]
        with np.errstate(all="ignore"):
            if self.mode == "nearest":
                index = np.concatenate([self._joined(places[part], sizes)[0][0] for part in parts])
                return self._nearest(X, index.reshape(len(X), -1)).reshape(shape)
            inner = np.result_type(wide(X).dtype, np.float32) if X.dtype.kind in "fV" else np.dtype(np.float64)
            rows = channels_last(X.astype(inner, copy=False), self._border)
            image = np.arange(len(places)) // (len(places) // len(X)) * (len(rows) // len(X))
            y = np.empty_like(rows, shape=(len(places), X.shape[1]))
            for part in parts:
                index, weight = self._joined(places[part], sizes)
                y[part] = weighted_rows(rows, (index + image[part], weight))
            y = np.moveaxis(y.reshape(len(X), -1, X.shape[1]), 2, 1)
            return rounded(y, X.dtype).reshape(shape)

    @property
    def _border(self) -> int:
        """Zeros on each side of the axes, by which elements outside are counted."""
        return int(self.padding_mode == "zeros")

    def _joined(self, places: Array, sizes: tuple[int, ...]) -> Taps:
        """The elements of the spatial axes, with their border, for each of places [n, axes], and their weights."""
        given = np.ascontiguousarray(places.T[::-1])
        index, weight = self._taps(given, np.array(sizes, given.dtype)[:, None])
        return joined(list(zip(index.swapaxes(0, 1), weight.swapaxes(0, 1), strict=True)), [n + 2 * self._border for n in sizes])

    def _nearest(self, x: Array, index: Array) -> Array:
        """The elements [N, C, places] of x [N, C, *spatial] at index [N, places]."""
        if self._border:
            x = np.pad(x, [(0, 0), (0, 0), *[(1, 1)] * (x.ndim - 2)], constant_values="" if x.dtype == object else 0)
        return np.take_along_axis(x.reshape(*x.shape[:2], -1), index[:, None], 2)

    def _taps(self, given: Array, size: Array) -> Taps:
        """For places [axes, n] and sizes [axes, 1]: the elements [taps, axes, n] with the border, and their weights."""
        at = (given + 1) / 2 * (size - 1) if self.align_corners else ((given + 1) * size - 1) / 2
        at, size = _finite(at), size.astype(np.float64)
        at = np.rint(at) if self.mode == "nearest" else at
        if self.mode != "cubic":  # which brings in each tap alone, as PyTorch and onnxruntime do: along a border it matters
            at = self._inside(at, size, *self._range(size))
        if self.mode == "nearest":
            return self._elements(at[None], size), np.ones((1, len(given), 1))
        first = np.floor(at)
        t = at - first
        if self.mode == "linear":
            return self._elements(np.stack((first, first + 1)), size), np.stack((1 - t, t))
        steps = np.arange(-1, 3)[:, None, None]
        return self._elements(first + steps, size), cubic_weight(np.abs(t - steps))

    def _range(self, size: Array) -> tuple[Array, Array]:
        """The first and the last place of the axes, at which reflection mirrors."""
        return (0.0 * size, size - 1.0) if self.align_corners else (0.0 * size - 0.5, size - 0.5)

    def _inside(self, at: Array, size: Array, low: Array, high: Array) -> Array:
        """Places with those outside of `low` to `high` brought back into the axis, as `padding_mode` says."""
        if self.padding_mode == "zeros":
            return at
        outside = (at < low) | (at > high)
        if not outside.any():
            return at
        if self.padding_mode == "border":
            return np.where(outside, np.clip(at, 0, size - 1), at)
        start, end = self._range(size)
        length = end - start
        away = np.mod(at - start, np.maximum(2 * length, 1))  # an axis of one element has no length where corners are aligned
        mirrored = np.where(length > 0, start + np.where(away > length, 2 * length - away, away), 0)
        return np.where(outside, mirrored, at)

    def _elements(self, at: Array, size: Array) -> Array:
        if self.padding_mode == "zeros":
            index = np.minimum(at, size).astype(np.int64)
            return np.add(np.maximum(index, -1, out=index), 1, out=index)
        if self.padding_mode == "reflection":
            at = self._inside(at, size, 0 * size, size - 1)
        index = at.astype(np.int64)
        return np.minimum(np.maximum(index, 0, out=index), (size - 1).astype(np.int64), out=index)


def _finite(at: Array) -> Array:
    """Places in float64, with -1 for NaN, and no larger than indices can be."""
    at = at.astype(np.float64)
    lost = np.isnan(at)
    if lost.any():
        at[lost] = -1.0
    return np.minimum(np.maximum(at, -(2.0**40), out=at), 2.0**40, out=at)


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

    def reference(self, X: Array, grid: Array) -> Array:
        """As the newer version."""
        return self._newer().reference(X, grid)

    def _newer(self) -> GridSample:
        return GridSample(align_corners=self.align_corners, mode=self.mode.removeprefix("bi"), padding_mode=self.padding_mode)


def _check(value: str, name: str, accepted: tuple[str, ...]) -> None:
    if value not in accepted:
        raise OperatorError(f"attribute {name!r} is {value!r}; accepted: {', '.join(accepted)}")
