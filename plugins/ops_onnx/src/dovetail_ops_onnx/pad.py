"""Pad: https://onnx.ai/onnx/operators/onnx__Pad.html."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from dovetail.op import FLOATS, DType, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import scalar
from dovetail_ops_onnx._shapes import Movement, check_axes, ints, known_ints
from dovetail_ops_onnx._types import ALL, INDICES, Array, Types

_MODES = ("constant", "reflect", "edge", "wrap")
_Widths = list[tuple[int, int]]


class Pad(Movement):
    """The input with elements added before and after each of `axes` (all by default); negative pads cut elements off."""

    since = 11
    inputs: ClassVar[tuple[Any, ...]] = ("data: T", "pads: int64", "constant_value?: T", "axes?: Tind")
    outputs = ("output: T",)
    types = {"T": ALL, "Tind": INDICES}

    mode: str = "constant"

    def __post_init__(self) -> None:
        _check_mode(self.mode)

    def infer(
        self, data: TensorType, pads: TensorType, constant_value: TensorType | None = None, axes: TensorType | None = None
    ) -> TensorType:
        """The data's type with the pads added to its sizes; pads and axes must be known."""
        if constant_value is not None:
            scalar(constant_value, "constant_value")
        widths = _widths(data.rank, known_ints(pads, "pads"), None if axes is None else known_ints(axes, "axes"))
        return _inferred(data, widths, self.mode)

    def reference(self, data: Array, pads: Array, constant_value: Array | None = None, axes: Array | None = None) -> Array:
        """data with the pads added or cut off."""
        widths = _widths(data.ndim, ints(pads, "pads"), None if axes is None else ints(axes, "axes"))
        _inferred(TensorType.of(data), widths, self.mode)
        return _padded(data, widths, self.mode, self.fill(data.dtype, constant_value)[()])

    def fill(self, dtype: np.dtype[Any], constant_value: Array | None = None) -> Array:
        """The value of mode `constant`, as an array of rank 0: `constant_value`; zero or an empty string when left out."""
        return np.array("" if dtype.kind == "O" else 0, dtype) if constant_value is None else constant_value.reshape(())

    def is_identity(self, inputs: Types, outputs: Sequence[TensorType]) -> bool:
        """True when nothing is added or cut off."""
        pads = inputs[1]
        return pads is not None and pads.value is not None and not np.any(pads.value)

    def is_one_copy(self, dims: Sequence[int], pads: Array, axes: Array | None) -> bool:
        """Whether `copies` computes it: no element that is added comes from one that was added along the same axis."""
        spare = {"constant": math.inf, "edge": math.inf, "reflect": -1, "wrap": 0}[self.mode]
        widths = _widths(len(dims), ints(pads, "pads"), None if axes is None else ints(axes, "axes"))
        return all(max(b, a) <= max(d + min(b, 0) + min(a, 0) + spare, 0) for d, (b, a) in zip(dims, widths, strict=True))

    def copies(self, dst: Array, src: Array, pads: Array, axes: Array | None) -> Iterator[tuple[Array, Array]]:
        """The copies that pad `src` into `dst`, in order, each from a view to a view; for `constant` all but the constant."""
        widths = _widths(src.ndim, ints(pads, "pads"), None if axes is None else ints(axes, "axes"))
        kept: list[Any] = [slice(max(-b, 0), d - max(-a, 0)) for d, (b, a) in zip(src.shape, widths, strict=True)]
        cut = src[(..., *kept)]  # the dots keep an array of rank 0 a view
        inside: list[Any] = [slice(max(b, 0), max(b, 0) + d) for d, (b, _) in zip(cut.shape, widths, strict=True)]
        yield dst[(..., *inside)], cut
        for axis in range(src.ndim) if self.mode != "constant" else ():
            # Along earlier axes the borders are there already, along later ones not yet.
            region = dst[(slice(None),) * (axis + 1) + tuple(inside[axis + 1 :])].swapaxes(0, axis)
            yield from _borders(region, max(widths[axis][0], 0), cut.shape[axis], self.mode)


def _borders(dst: Array, before: int, size: int, mode: str) -> Iterator[tuple[Array, Array]]:
    """The copies before and after the `size` elements of axis 0 that are there from `before` on."""
    end = before + size
    after = dst.shape[0] - end
    inner = dst[before:end]
    if mode == "edge":
        sources = inner[:1], inner[-1:]
    elif mode == "wrap":
        sources = inner[size - before :], inner[:after]
    else:
        sources = inner[1 : 1 + before][::-1], inner[size - 1 - after : size - 1][::-1]
    yield from ((part, source) for part, source in zip((dst[:before], dst[end:]), sources, strict=True) if part.size)


class Pad_2(Pad):
    """Pad with pads and value as attributes."""

    since = 2
    inputs = ("data: T", "pads: int64")
    types = {"T": FLOATS}
    legacy_attributes = {"pads": "pads"}

    value: float = 0.0

    def fill(self, dtype: np.dtype[Any], constant_value: Array | None = None) -> Array:
        """The attribute in the data's type."""
        with np.errstate(over="ignore"):
            return np.asarray(self.value).astype(dtype)


def _check_mode(mode: str) -> None:
    if mode not in _MODES:
        raise OperatorError(f"attribute 'mode' is {mode!r}; accepted: {', '.join(_MODES)}")


def _widths(rank: int, pads: Sequence[int], axes: Sequence[int] | None) -> _Widths:
    chosen = check_axes(range(rank) if axes is None else axes, rank)
    if len(pads) != 2 * len(chosen):
        raise ShapeError(f"pads is {list(pads)}; accepted: {2 * len(chosen)} numbers, all begins before all ends")
    widths = [(0, 0)] * rank
    for axis, before, after in zip(chosen, pads[: len(chosen)], pads[len(chosen) :], strict=True):
        widths[axis] = (before, after)
    return widths


def _inferred(data: TensorType, widths: _Widths, mode: str) -> TensorType:
    for axis, (d, (before, after)) in enumerate(zip(data.dims, widths, strict=True)):
        kept = d + min(before, 0) + min(after, 0)
        if kept < 0:
            raise ShapeError(f"the pads {before} and {after} cut more than the {d} elements of axis {axis}")
        if kept == 0 and mode != "constant" and max(before, after) > 0:
            raise ShapeError(f"mode {mode!r} has nothing to pad axis {axis} from: its size is 0")
    return data.with_shape(tuple(d + sum(width) for d, width in zip(data.dims, widths, strict=True)))


def _padded(data: Array, widths: _Widths, mode: str, fill: Any) -> Array:
    cut = data[tuple(slice(max(-b, 0), d - max(-a, 0)) for d, (b, a) in zip(data.shape, widths, strict=True))]
    added = [(max(b, 0), max(a, 0)) for b, a in widths]
    if mode == "constant":
        result = np.full(tuple(d + b + a for d, (b, a) in zip(cut.shape, added, strict=True)), fill, DType.of(data.dtype).numpy)
        result[tuple(slice(b, b + d) for d, (b, _) in zip(cut.shape, added, strict=True))] = cut
        return result
    pad: Callable[..., Array] = np.pad  # which is declared for each mode by itself
    return pad(cut, added, mode=mode)
