"""The steps after sums of 8-bit numbers in float, for 8-bit results that are stored out of registers: cl/byte_results.cl.

A sum becomes a part of the range of its quantization, kept between 0 and 1, and then a whole number. Where it is so near a half
that the roundings before may have moved it to the other side, the element is computed once more as `_quantized.py` defines it.

Steps behind that are a function of this number and of a stored one, each of which has at most 256 values. They are computed as
a linear function that is rounded once, if factors are found with which it is equal for all pairs.
"""

import dataclasses
import itertools

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.device import Binary, DType, Eltwise, PostOp, TypedNode
from dovetail_gpu_opencl.kernels._integer import EIGHT_BITS, Result
from dovetail_gpu_opencl.kernels._quantized import Factors
from dovetail_gpu_opencl.kernels._quantized_steps import Refused, Steps, given, relus_before, stored_bounds
from dovetail_gpu_opencl.launch import Constant, Scalar
from dovetail_ops_onnx.quantized import Scaling

__all__ = ["direct_result", "is_direct"]

Floats = NDArray[np.float32]

_SHIFT = 12582912.0
"""1.5 * 2^23: added to a float below 2^22, it leaves a whole number in the low bits."""
_BYTE = 8388608.0
"""2^23: the float whose bits, with a byte in the lowest place, are 2^23 plus that byte."""
_UNIT = 2.0**-24
"""The greatest relative error of a rounding to float32."""
_RANGE = 2.0**30
"""Values and quotients by scales between 1 / _RANGE and _RANGE neither overflow nor lose bits."""
_EXACT = 1 << 24
"""Whole numbers up to this are floats."""
_LEAST, _GREATEST, _GRID = 2.0**-18, 4.0, 2.0**-41
"""Floats between these have no bits below the grid, and sums of 1024 of them need no more bits than a double has."""
_SIGNS = {"add": (1, 1), "sub": (1, -1), "rsub": (-1, 1)}
"""Of a value and of an operand in their sum."""
_WORDS = {4: "uint", 8: "uint2", 16: "uint4"}
_SATURATED = """#ifdef MATRIX_UNITS
static float saturated(const float x, const float y, const float z) {
  float r;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(x), "f"(y), "f"(z));
  return r;
}
#else
static float saturated(const float x, const float y, const float z) { return fmin(fmax(fma(x, y, z), 0.0f), 1.0f); }
#endif
"""


@dataclass
class Pairs(Steps):
    """Steps in numbers: `real` are the values in float32 for each whole number that a sum may become, along the first axis,
    and for each stored number of one operand, along the second. But for roundings, bounds and a constant, `slopes` times both.
    """

    real: Floats = field(default_factory=lambda: np.zeros((1, 1), np.float32))
    slopes: tuple[float, float] = (0.0, 0.0)
    kept: int = -1
    """The input that is read where the result is written."""
    first: float = 0.0
    """Its least stored number, less the zero point."""

    def round(self, scaling: Scaling, *, last: bool = False) -> None:
        self.real = (self.stored(scaling) - np.float32(stored_bounds(scaling)[1])) * np.float32(stored_bounds(scaling)[0])

    def stored(self, scaling: Scaling) -> Floats:
        """The values as the quantization stores them."""
        scale, zero, least, most = stored_bounds(scaling)
        whole: Floats = np.rint(self.real / np.float32(_within_range(scale))) + np.float32(zero)
        return whole.clip(least, most)

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
        tensor, scaling = given(self.node, index), self.op.scalings[index]
        if scaling is None or tensor.dtype not in EIGHT_BITS or tensor.dims != self.node.outputs[0].dims:
            raise Refused(f"an operand {tensor}; accepted: 8-bit numbers of the result's shape")
        if self.kept not in (-1, index):
            raise Refused("several operands")
        scale, zero, least, _ = stored_bounds(scaling)
        self.kept, self.first = index, least - zero
        return (np.arange(256, dtype=np.float32) + np.float32(self.first)) * np.float32(_within_range(scale)), scale


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
        """Those that `expression` reads, from q3 on."""
        return (self.down, self.across, self.start, _BYTE - self.first, self.span, _SHIFT + self.low, self.width, self.zero)

    @property
    def expression(self) -> str:
        """A float in C with the result in its low byte. `r` is the row, and `kept` has the column's number as `_BYTE` says."""
        column = "fma(kept - q6, q4, q5)"
        if self.span == 1:
            return f"fmin(fmax(fma(r, q3, {column}), 0.0f), q9) + q8 + q10"
        return f"fma(saturated(r, q3, {column}), q7, q8)"


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
        start = (pairs.slopes[0] * lowest / scale + zero - low) / span + nudges[2] * width / span * _UNIT / 4
        start = float(np.float32(np.rint(start / _GRID) * _GRID))
        line = Line(down, across if pairs.kept >= 0 else 0.0, start, pairs.first, base, added, width, span)
        if line.is_exact and np.array_equal(line.table(*found.shape), found):
            return line
    raise Refused("steps that are not found to be a line")


def is_direct(node: TypedNode, maps: int, work_n: int) -> bool:
    """Whether results are 8-bit numbers, and the neighbours of an item all there or all beyond the last."""
    return node.outputs[0].dtype in EIGHT_BITS and maps % (work_n // 4) == 0


def direct_result(factors: Factors, result: Result, work_n: int) -> Result:
    """The result with the functions for sub-groups whose tiles are `work_n` wide. Raises `Refused`.

    `factor`, which only these read then, is in parts of the range of the first quantization.
    """
    node, op = factors.node, factors.op
    relus, scaling = relus_before(op)
    if scaling is None or op.result is None or factors.counts is None:
        raise Refused("sums that are not quantized at once, or a bias that is not a whole number of them")
    scale, zero, least, most = stored_bounds(scaling)
    lowest = max(least - zero, 0.0 if relus else -np.inf)
    span = most - zero - lowest
    if span < 1:
        raise Refused(f"a zero point of {zero:g}, which leaves one number")
    with np.errstate(all="ignore"):
        factor = (factors.units / _within_range(scale) / span).astype(np.float32)
    if not np.abs(factor).max(initial=0) <= _RANGE:  # also where it is not a number
        raise Refused("scales that are too large")
    shift, kept, value = _SHIFT + lowest + zero, -1, "w"
    numbers: tuple[float, ...] = ()
    if 1 + relus < len(op.steps):
        real = np.arange(lowest, lowest + span + 1, dtype=np.float32)[:, np.newaxis] * np.float32(scale)
        pairs = Pairs(node, op, 1, real=real, slopes=(scale, 0.0))
        pairs.add(*op.steps[2 + relus :])
        line = fitted(pairs, op.result, lowest)
        shift, kept, value, numbers = _SHIFT, pairs.kept, line.expression, line.numbers
    passed = [float(np.float32(-lowest / span)), span, shift, *numbers, _nearest(factors, lowest, span)]
    names = [f"q{i}" for i in range(len(passed) - 1)]
    declared = "".join(f", const float {name}" for name in names)
    source = f"""{_SATURATED}static uint direct_1(const int sum, const float f, const float kept, float* distance{declared}) {{
  const float t = saturated((float)sum, f, q0), w = fma(t, q1, q2), r = w - q2;
  *distance = fabs(fma(t, q1, -r));
  return as_uint({value});
}}
"""
    defines: dict[str, object] = {
        **result.defines,
        "RESULT_ARGS": f"{result.defines['RESULT_ARGS']}{declared}, const float nearest",
        "WIDE": work_n // 4,
        "WORDS_T": _WORDS[work_n // 4],
        "NEAREST": "nearest",
        "DIRECT_1(s, f, kept, distance)": f"direct_1(s, f, kept, distance{''.join(f', {name}' for name in names)})",
    }
    if kept >= 0:
        signed = given(node, kept).dtype is DType.INT8
        defines |= {"KEPT_BYTES": f"in{kept}", "KEPT_SIGN": "0x80808080u" if signed else "0u"}
    own = (Constant(factor), *result.own[1:], *(Scalar(np.float32(number)) for number in passed))
    return dataclasses.replace(result, source=result.source + source, defines=defines, own=own)


def _nearest(factors: Factors, lowest: float, span: float) -> float:
    """The greatest distance from a whole number at which roundings cannot have moved a sum across a half.

    A factor and its product with a sum are rounded, sums too from `_EXACT` on, and where the range starts.
    """
    start = -lowest / span
    roundings = 1 if _greatest_sum(factors) < _EXACT else 2
    moved = roundings * max(start, 1 - start) * _UNIT + _UNIT / 2 + abs(float(np.float32(start)) - start)
    return 0.5 - 1.01 * span * moved - _UNIT


def _greatest_sum(factors: Factors) -> int:
    """No sum is greater."""
    source, counts = given(factors.node, 0), factors.counts
    limits = np.iinfo(source.dtype.numpy)
    widest = max(factors.zero_point - int(limits.min), int(limits.max) - factors.zero_point)
    magnitudes = factors.weights.fact("magnitudes", lambda whole: np.abs(whole).reshape(len(whole), -1).sum(1, dtype=np.int64))
    return int((magnitudes * widest + (0 if counts is None else np.abs(counts.astype(np.int64)))).max(initial=0))


def _within_range(scale: float) -> float:
    if not 1 / _RANGE <= scale <= _RANGE:
        raise Refused(f"a scale {scale}")
    return scale


def _is_simple(post_op: PostOp) -> bool:
    if isinstance(post_op, Eltwise):
        return post_op.algorithm == "relu" and post_op.alpha == 0 and post_op.scale == 1
    return isinstance(post_op, Binary) and post_op.algorithm in _SIGNS
