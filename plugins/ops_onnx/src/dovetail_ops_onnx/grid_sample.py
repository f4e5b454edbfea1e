"""GridSample: https://onnx.ai/onnx/operators/onnx__GridSample.html."""

import itertools
import math

import numpy as np

from dovetail.op import FLOATS, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._resample import cubic_weight
from dovetail_ops_onnx._types import BASIC, Array

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
        places = wide(grid).reshape(len(X), -1, len(sizes))[..., ::-1]
        taps = [self._taps(places[..., axis], size) for axis, size in enumerate(sizes)]
        flat = X.reshape(*X.shape[:2], -1)
        if self.mode == "nearest":
            index, inside = _joined([taps[axis][0][:2] for axis in range(len(sizes))], sizes)
            y = np.take_along_axis(flat, index[:, None], 2)
            return np.where(inside[:, None], y, "" if X.dtype == object else X.dtype.type(0)).reshape(shape)
        inner = np.result_type(wide(X).dtype, np.float32) if X.dtype.kind in "fV" else np.dtype(np.float64)
        total = np.zeros((*X.shape[:2], places.shape[1]), inner)
        with np.errstate(all="ignore"):
            for chosen in itertools.product(*taps):
                index, inside = _joined([tap[:2] for tap in chosen], sizes)
                weight = np.asarray(math.prod(tap[2] for tap in chosen))
                # Zeros are added for elements outside, also where an infinity is at the border.
                found = np.where(inside[:, None], np.take_along_axis(flat, index[:, None], 2).astype(inner), inner.type(0))
                total += found * weight[:, None]
        return rounded(total.astype(inner), X.dtype).reshape(shape)

    def _taps(self, given: Array, size: int) -> list[tuple[Array, Array, Array]]:
        """The elements of an axis for each place: index, whether it is inside, and weight."""
        with np.errstate(all="ignore"):
            at = (given + 1) / 2 * (size - 1) if self.align_corners else ((given + 1) * size - 1) / 2
        at = np.clip(np.nan_to_num(at.astype(given.dtype).astype(np.float64), nan=-1.0), -(2.0**40), 2.0**40)
        at = np.rint(at) if self.mode == "nearest" else at
        if self.mode != "cubic":  # which brings in each tap alone, as PyTorch and onnxruntime do: along a border it matters
            low, high = (0.0, size - 1.0) if self.align_corners else (-0.5, size - 0.5)
            at = np.where((at < low) | (at > high), self._inside(at, size), at)
        if self.mode == "nearest":
            return [(*self._element(at, size), np.ones(()))]
        first = np.floor(at)
        t = at - first
        if self.mode == "linear":
            return [(*self._element(first + i, size), t if i else 1 - t) for i in (0, 1)]
        return [(*self._element(first + i, size), cubic_weight(np.abs(t - i))) for i in (-1, 0, 1, 2)]

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

    def _element(self, at: Array, size: int) -> tuple[Array, Array]:
        outside = (at < 0) | (at > size - 1)
        at = np.where(outside, self._inside(at, size), at)
        kept = ~outside if self.padding_mode == "zeros" else np.ones_like(outside)
        return np.clip(at, 0, size - 1).astype(np.int64), kept


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


def _joined(taps: list[tuple[Array, Array]], sizes: tuple[int, ...]) -> tuple[Array, Array]:
    """The index into the flattened axes, and whether it is inside on all of them."""
    index = np.zeros((), np.int64)
    inside = np.ones((), bool)
    for (at, kept), size in zip(taps, sizes, strict=True):
        index, inside = index * size + at, inside & kept
    return index, inside
