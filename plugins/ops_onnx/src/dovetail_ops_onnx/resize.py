"""Resize: resampling by nearest, linear or cubic interpolation. https://onnx.ai/onnx/operators/onnx__Resize.html"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.errors import did_you_mean
from dovetail.op import DType, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._interpolation import resample
from dovetail_ops_onnx._resample import (
    COORDINATES,
    NEAREST,
    Axis,
    Sampling,
    check_samples,
    checked_scale,
    resampled_type,
    resampling_flops,
    scaled_size,
)
from dovetail_ops_onnx._scale_resampling import ScaleResampling
from dovetail_ops_onnx._shapes import check_axes, known, known_ints
from dovetail_ops_onnx._types import BASIC, FLOATS, Array, Types

Planned = tuple[tuple[Axis, ...], Sampling]

_CHOICES = {
    "mode": ("nearest", "linear", "cubic"),
    "coordinate_transformation_mode": COORDINATES,
    "nearest_mode": NEAREST[:4],
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
}


class Resize(Operator):
    """Y = X resampled to X's size times `scales`, or to `sizes`: exactly one of them, for all axes or for `axes`.

    `roi` counts only for tf_crop_and_resize. Integers are interpolated in float64 and cut off.
    """

    since = 11
    inputs = ("X: T1", "roi?: T2", "scales?: float32", "sizes?: int64")
    outputs = ("Y: T1",)
    types = {"T1": BASIC, "T2": FLOATS - {DType.BFLOAT16}}
    antialias: bool = False
    axes: tuple[int, ...] | None = None
    coordinate_transformation_mode: str = "half_pixel"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    extrapolation_value: float = 0.0
    keep_aspect_ratio_policy: str = "stretch"
    mode: str = "nearest"
    nearest_mode: str = "round_prefer_floor"

    def __post_init__(self) -> None:
        for name, accepted in _CHOICES.items():
            if getattr(self, name) not in accepted:
                raise OperatorError(
                    f"attribute {name!r} is {getattr(self, name)!r}", hint=did_you_mean(getattr(self, name), accepted)
                )

    @property
    def sampling(self) -> Sampling:
        """The attributes that hold for every axis."""
        return Sampling(
            self.mode,
            self.coordinate_transformation_mode,
            self.nearest_mode,
            self.cubic_coeff_a,
            self.exclude_outside,
            self.antialias,
            self.extrapolation_value,
        )

    def plan(
        self, X: TensorType, roi: TensorType | None, scales: TensorType | None, sizes: TensorType | None
    ) -> tuple[Axis, ...]:
        """The axes to resample, those that stay as they are left out; the inputs after X must be known.

        Raises `OperatorError` or `ShapeError` for inputs that do not fit.
        """
        chosen = check_axes(tuple(range(X.rank)) if self.axes is None else self.axes, X.rank)
        crops = self.coordinate_transformation_mode == "tf_crop_and_resize"
        region = _numbers("roi", roi, 2 * len(chosen)) if crops else None
        regions = list(zip(region[: len(chosen)], region[len(chosen) :], strict=True)) if region else [(0.0, 1.0)] * len(chosen)
        if crops and region is None:
            raise OperatorError("input 'roi' is required by tf_crop_and_resize and was left out")
        factors = _numbers("scales", scales, len(chosen))
        wanted = _numbers("sizes", sizes, len(chosen))
        if (factors is None) == (wanted is None):
            count = "neither" if factors is None else "both"
            raise OperatorError(f"{count} of the inputs 'scales' and 'sizes' given; accepted: exactly one of them")
        before = [X.dims[a] for a in chosen]
        if factors is not None:
            outs = [scaled_size(d, s, end - start) for d, s, (start, end) in zip(before, factors, regions, strict=True)]
        else:
            assert wanted is not None
            outs, factors = self._by_sizes(before, [int(w) for w in wanted])
        every = [Axis(*given) for given in zip(chosen, before, outs, factors, regions, strict=True)]
        return tuple(a for a in every if a.out != a.size or a.scale != 1 or a.roi != (0.0, 1.0))

    def infer(
        self,
        X: TensorType,
        roi: TensorType | None = None,
        scales: TensorType | None = None,
        sizes: TensorType | None = None,
    ) -> TensorType:
        axes = self.plan(X, roi, scales, sizes)
        check_samples(X, axes, self.mode)
        return resampled_type(X, axes)

    def reference(self, X: Array, roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None) -> Array:
        given = [None if a is None else (a.dtype, a.shape, a.tobytes()) for a in (roi, scales, sizes)]
        axes, sampling = _planned(self, X.shape, *given)
        return resample(X, axes, sampling)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return resampling_flops(self.mode, outputs[0])

    def _by_sizes(self, before: list[int], wanted: list[int]) -> tuple[list[int], list[float]]:
        if any(w < 0 for w in wanted):
            raise OperatorError(f"'sizes' are {wanted}; accepted: numbers of 0 or more")
        ratios = [w / d if d else 1.0 for w, d in zip(wanted, before, strict=True)]
        if self.keep_aspect_ratio_policy == "stretch" or not ratios:
            return wanted, ratios
        ratio = min(ratios) if self.keep_aspect_ratio_policy == "not_larger" else max(ratios)
        return [math.floor(ratio * d + 0.5) for d in before], [ratio] * len(before)


@functools.lru_cache(64)
def _planned(op: Resize, dims: tuple[int, ...], *given: tuple[np.dtype[Any], tuple[int, ...], bytes] | None) -> Planned:
    """The axes to resample for inputs of this content, which takes a third of the time of a small result."""
    arrays = [None if one is None else np.frombuffer(one[2], one[0]).reshape(one[1]) for one in given]
    types = [None if a is None else TensorType.of(a, known=True) for a in arrays]
    return op.plan(TensorType(DType.FLOAT32, dims), *types), op.sampling


class Resize_10(ScaleResampling):
    """Y = X resampled to X's size times `scales`; output element o reads input element o / scale."""

    since = 10

    @property
    def sampling(self) -> Sampling:
        """The attributes in the form of the versions after 11."""
        return Sampling(self.mode, "asymmetric", "simple")

    def plan(self, X: TensorType, scales: TensorType) -> tuple[Axis, ...]:
        """The axes to resample, those of scale 1 left out. Raises `OperatorError` or `ShapeError` for scales that do not fit."""
        factors = _numbers("scales", scales, X.rank) or ()
        if len(factors) != X.rank:
            raise ShapeError(f"'scales' is {scales}; accepted: one number for each axis of X {X}")
        every = zip(X.dims, map(checked_scale, factors), strict=True)
        return tuple(Axis(a, d, scaled_size(d, s), s) for a, (d, s) in enumerate(every) if s != 1)


def _numbers(name: str, given: TensorType | None, count: int) -> list[float] | None:
    """The content of an input; None when it is left out or empty, which versions before 13 use for that."""
    if given is None or given.size == 0:
        return None
    if given.dims != (count,):
        raise ShapeError(f"input {name!r} is {given}; accepted: {count} numbers")
    values = known_ints(given, name) if given.dtype.is_integer else known(given, name)
    return [float(v) for v in values]
