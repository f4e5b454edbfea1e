"""Resampling along axes, for Resize and Upsample: coordinates, taps and weights. Formulas: ONNX's page of Resize."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.op import OperatorError, ShapeError, TensorType

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


def _coordinates(a: Axis, mode: str, x: Floats) -> Floats:
    """For each output position `x` its place on the input axis.

    With a scale that gives no whole number, align_corners takes scale * size as the output's length: ONNX's node tests want that.
    """
    # The ratio of two whole sizes is not rounded: with 7 elements made 2, element 1 is at 3.5, where rounding decides.
    whole = a.size and a.scale == a.out / a.size
    length = x.dtype.type(a.out) if whole else x.dtype.type(a.scale) * x.dtype.type(a.size)
    if mode == "asymmetric":
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
