"""Steps behind a sum of 8-bit numbers as linear functions of whole numbers, where these have the same results for all of them."""

import itertools

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.device import Binary, Eltwise, PostOp, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernels._integer import EIGHT_BITS
from dovetail_gpu_opencl.kernels._quantized_steps import Refused, Steps, stored_bounds
from dovetail_ops_onnx.quantized import Scaling

__all__ = [
    "SHIFT",
    "UNIT",
    "ChannelLines",
    "Channels",
    "Line",
    "Pairs",
    "channel_lines",
    "fitted",
    "is_of_channels",
    "within_range",
]

Floats = NDArray[np.float32]

SHIFT = 12582912.0
"""1.5 * 2^23: added to a float below 2^22, it leaves a whole number in the low bits."""
UNIT = 2.0**-24
"""The greatest relative error of a rounding to float32."""
_BYTE = 8388608.0
"""2^23: the float whose bits, with a byte in the lowest place, are 2^23 plus that byte."""
_RANGE = 2.0**30
"""Values and quotients by scales between 1 / _RANGE and _RANGE neither overflow nor lose bits."""
_LEAST, _GREATEST, _GRID = 2.0**-18, 4.0, 2.0**-41
"""Floats between these have no bits below the grid, and sums of 1024 of them need no more bits than a double has."""
_CHANNEL_GRID, _STEEPEST, _FARTHEST = 2.0**-36, 64.0, 8192.0
"""Slopes and starts of channels have no bits below the grid, and are at most so great: for these, too, a double is exact."""
_START_NUDGES = tuple(2.0**-18 * n for n in (0, 1, -1, 2, -2, 4, -4, 8, -8))
_SIGNS = {"add": (1, 1), "sub": (1, -1), "rsub": (-1, 1)}
"""Of a value and of an operand in their sum."""


@dataclass
class Tabulated(Steps):
    """Steps in numbers: `real` are the values in float32 for each whole number that a sum may become, along the first axis."""

    real: Floats = field(default_factory=lambda: np.zeros((1, 1), np.float32))

    def round(self, scaling: Scaling, *, last: bool = False) -> None:
        self.real = (self.stored(scaling) - np.float32(stored_bounds(scaling)[1])) * np.float32(stored_bounds(scaling)[0])

    def stored(self, scaling: Scaling) -> Floats:
        """The values as the quantization stores them."""
        scale, zero, least, most = stored_bounds(scaling)
        whole: Floats = np.rint(self.real / np.float32(within_range(scale))) + np.float32(zero)
        return whole.clip(least, most)


@dataclass
class Channels(Tabulated):
    """Steps with numbers of each channel, along the second axis: but for roundings and bounds, `gain` times a value, plus
    `offset`."""

    gain: NDArray[np.float64] = field(default_factory=lambda: np.ones(1))
    offset: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    cuts: bool = False
    """Whether the last step leaves nothing negative."""

    def chain(self, chain: tuple[PostOp, ...] | None, key: str) -> None:
        for post_op in chain or ():
            if self.cuts:
                raise Refused(f"{key} behind a Relu")
            if isinstance(post_op, Binary) and post_op.algorithm in ("add", "mul"):
                numbers = self._numbers(int(post_op.operand))
                if post_op.algorithm == "mul":
                    self.real, self.gain, self.offset = self.real * numbers, self.gain * numbers, self.offset * numbers
                else:
                    self.real, self.offset = self.real + numbers, self.offset + numbers
            elif _is_simple(post_op):
                self.real, self.cuts = np.maximum(self.real, np.float32(0)), True
            else:
                raise Refused(key)
        if chain is None:
            raise Refused(key)

    def _numbers(self, index: int) -> Floats:
        if not is_of_channels(self.node, index):
            raise Refused(f"an operand {self.node.given(index)}; accepted: a constant for each channel")
        value, scaling = self.node.given(index).value, self.op.scalings[index]
        assert value is not None
        numbers: Floats = value.astype(np.float32).reshape(-1)
        if scaling is None:
            return numbers
        scale, zero, _, _ = stored_bounds(scaling)
        return (numbers - np.float32(zero)) * np.float32(scale)


def is_of_channels(node: TypedNode, index: int) -> bool:
    """Whether an input has one constant number for all or for each channel of the result, which are innermost."""
    tensor, result = node.given(index), node.outputs[0]
    if tensor.value is None or tensor.rank > result.rank:
        return False
    *outer, channels = post_ops.in_order(tensor, result).dims
    return set(outer) <= {1} and channels in (1, result.dims[result.order[-1]])


@dataclass(frozen=True, slots=True)
class ChannelLines:
    """For each channel, the whole number next to row * `slopes` + `starts`, at least 0 and at most `width`; it counts from `low`.

    Rows count from 0.
    """

    slopes: Floats
    starts: Floats
    width: float
    low: float


def channel_lines(steps: Channels, scaling: Scaling, first: float, scale: float) -> ChannelLines:
    """The lines with the stored numbers of all values: row 0 is `first` times `scale`. Raises `Refused` if none are found.

    Their factors are those of the steps, or next to these.
    """
    found, (unit, zero, least, most) = steps.stored(scaling), stored_bounds(scaling)
    low = max(least, zero) if steps.cuts else least
    with np.errstate(all="ignore"):
        slope = np.broadcast_to(steps.gain * scale / unit, found.shape[1])
        start = np.broadcast_to((steps.gain * scale * first + steps.offset) / unit + zero - low, found.shape[1])
    if not (np.abs(slope).max(initial=0) <= _STEEPEST / 2 and np.abs(start).max(initial=0) <= _FARTHEST / 2):
        raise Refused("steps of a channel that are too steep")
    lines, left = np.zeros((2, found.shape[1]), np.float32), np.arange(found.shape[1])
    rows = np.arange(len(found), dtype=np.float64)[:, np.newaxis]
    for after, nudge in itertools.product(_START_NUDGES, (0, 1, -1)):
        tried = _on_grid(slope[left] + nudge * np.spacing(np.float32(slope[left]))), _on_grid(start[left] + after)
        parts = np.float32(rows * tried[0].astype(np.float64) + tried[1].astype(np.float64))
        fits = (np.rint(parts.clip(0, most - low)) + np.float32(low) == found[:, left]).all(0)
        lines[:, left[fits]] = [numbers[fits] for numbers in tried]
        left = left[~fits]
        if not left.size:
            return ChannelLines(lines[0], lines[1], most - low, low)
    raise Refused(f"steps of {left.size} channels that are not found to be a line")


def _on_grid(numbers: NDArray[np.float64]) -> Floats:
    return (np.rint(numbers / _CHANNEL_GRID) * _CHANNEL_GRID).astype(np.float32)


@dataclass
class Pairs(Tabulated):
    """As `Tabulated`, for each stored number of one operand, along the second axis. But for roundings, bounds and a constant,
    `slopes` times both.
    """

    slopes: tuple[float, float] = (0.0, 0.0)
    kept: int = -1
    """The input that is read where the result is written."""
    first: float = 0.0
    """Its least stored number, less the zero point."""

    def chain(self, chain: tuple[PostOp, ...] | None, key: str) -> None:
        if chain is None or not all(_is_simple(post_op) for post_op in chain):
            raise Refused(key)
        for post_op in chain:
            if isinstance(post_op, Binary):
                own, other = _SIGNS[post_op.algorithm]
                numbers, scale = self._numbers(int(post_op.operand))
                self.real = np.float32(own) * self.real + np.float32(other) * numbers
                self.slopes = own * self.slopes[0], own * self.slopes[1] + other * scale
            else:
                self.real = np.maximum(self.real, np.float32(0))

    def _numbers(self, index: int) -> tuple[Floats, float]:
        """The real values of all stored numbers of an operand, and its scale."""
        tensor, scaling = self.node.given(index), self.op.scalings[index]
        if scaling is None or tensor.dtype not in EIGHT_BITS or tensor.dims != self.node.outputs[0].dims:
            raise Refused(f"an operand {tensor}; accepted: 8-bit numbers of the result's shape")
        if self.kept not in (-1, index):
            raise Refused("several operands")
        scale, zero, least, _ = stored_bounds(scaling)
        self.kept, self.first = index, least - zero
        return (np.arange(256, dtype=np.float32) + np.float32(self.first)) * np.float32(within_range(scale)), scale


@dataclass(frozen=True, slots=True)
class Line:
    """The whole number next to `low` plus `span` times a part, which is row * `down` + column * `across` + `start`, at least 0
    and at most `width` / `span`; then `zero` more. Rows count from 0, columns from `first`."""

    down: float
    across: float
    start: float
    first: float
    low: float
    zero: float
    width: float
    span: float

    @property
    def is_exact(self) -> bool:
        """Whether products and sums of these numbers are exact in double."""
        factors = [abs(x) for x in (self.down, self.across) if x]
        return all(_LEAST <= x <= _GREATEST for x in factors) and abs(self.start) <= 256 * _GREATEST

    def table(self, rows: int, columns: int) -> NDArray[np.float64]:
        """All results, with the roundings to float32 that devices make."""
        across = np.float32((np.arange(columns) + self.first) * self.across + self.start).astype(np.float64)
        parts = np.float32(np.arange(rows)[:, np.newaxis] * self.down + across).astype(np.float64)
        found: NDArray[np.float64] = np.rint(np.clip(parts, 0, self.width / self.span) * self.span + self.low) + self.zero
        return found

    @property
    def numbers(self) -> tuple[float, ...]:
        """Those that `expression` reads, in order."""
        return (self.down, self.across, self.start, _BYTE - self.first, self.span, SHIFT + self.low, self.width, self.zero)

    def expression(self, at: int) -> str:
        """A float in C with the result in its low byte. `r` is the row, and `kept` has the column's number as `_BYTE` says.

        `numbers` are q and their place, from `at` on.
        """
        down, across, start, base, span, low, width, zero = (f"q{i}" for i in range(at, at + 8))
        column = f"fma(kept - {base}, {across}, {start})"
        if self.span == 1:
            return f"fmin(fmax(fma(r, {down}, {column}), 0.0f), {width}) + {low} + {zero}"
        return f"fma(saturated(r, {down}, {column}), {span}, {low})"


def fitted(pairs: Pairs, scaling: Scaling, lowest: float) -> Line:
    """The line with the results of all pairs; the first whole number is `lowest`. Raises `Refused` if none is found.

    Its factors are those of the steps, or next to these. Parts between 0 and 1 are kept there at no cost on NVIDIA GPUs;
    in steps of 1 sums that are halves, which scales that are powers of two give, are exact, and rounded before `zero` is added.
    """
    found, (scale, zero, _, _) = pairs.stored(scaling), stored_bounds(scaling)
    low, width = float(found.min()), float(np.ptp(found))
    shapes = (max(width, 1.0), low, 0.0), (1.0, low - zero, zero)
    for nudges, (span, base, added) in itertools.product(itertools.product((0, 1, -1), repeat=3), shapes):
        slopes = [np.float32(slope / scale / span) for slope in pairs.slopes]
        down, across = (float(slope + nudge * np.spacing(slope)) for slope, nudge in zip(slopes, nudges, strict=False))
        start = (pairs.slopes[0] * lowest / scale + zero - low) / span + nudges[2] * width / span * UNIT / 4
        start = float(np.float32(np.rint(start / _GRID) * _GRID))
        line = Line(down, across if pairs.kept >= 0 else 0.0, start, pairs.first, base, added, width, span)
        if line.is_exact and np.array_equal(line.table(*found.shape), found):
            return line
    raise Refused("steps that are not found to be a line")


def within_range(scale: float) -> float:
    """The scale. Raises `Refused` where quotients by it may overflow or lose bits."""
    if not 1 / _RANGE <= scale <= _RANGE:
        raise Refused(f"a scale {scale}")
    return scale


def _is_simple(post_op: PostOp) -> bool:
    if isinstance(post_op, Eltwise):
        return post_op.algorithm == "relu" and post_op.alpha == 0 and post_op.scale == 1
    return isinstance(post_op, Binary) and post_op.algorithm in _SIGNS
