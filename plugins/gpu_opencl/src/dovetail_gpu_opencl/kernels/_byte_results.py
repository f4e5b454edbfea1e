"""The steps after sums of 8-bit numbers in float, for 8-bit results that are stored out of registers: cl/byte_results.cl.

A sum becomes a part of the range of its quantization, kept between 0 and 1, and then a whole number. Where it is so near a half
that the roundings before may have moved it to the other side, the element is computed once more as `_quantized.py` defines it.

Steps behind that are a function of this number and of a stored one, each of which has at most 256 values. They are computed as
a linear function that is rounded once, if factors are found with which it is equal for all pairs. Before these may be steps with
numbers of each channel, such as a norm's, up to the next quantization: then each channel has such a function of the first number.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from dovetail.device import DType, TypedNode
from dovetail_gpu_opencl.kernels._byte_lines import (
    SHIFT,
    UNIT,
    Channels,
    Floats,
    Pairs,
    channel_lines,
    fitted,
    is_of_channels,
    within_range,
)
from dovetail_gpu_opencl.kernels._integer import EIGHT_BITS, Result
from dovetail_gpu_opencl.kernels._quantized import Factors
from dovetail_gpu_opencl.kernels._quantized_steps import Refused, relus_before, stored_bounds
from dovetail_gpu_opencl.launch import Constant, Scalar
from dovetail_ops_onnx.quantized import QuantizedStep, Scaling

__all__ = ["direct_result", "is_direct"]

_RANGE = 2.0**30
"""Factors up to this neither overflow nor lose bits."""
_EXACT = 1 << 24
"""Whole numbers up to this are floats."""
_WORDS = {4: "uint", 8: "uint2", 16: "uint4"}
_LINES = ", __global const float* restrict slopes, __global const float* restrict starts"
_OF_ALL = "  const float r = n;\n"
_OF_CHANNELS = "  const float shifted = fmin(fmax(fma(n, slope, start), 0.0f), q3) + q4, r = shifted - q4;\n"
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
        factor = (factors.units / within_range(scale) / span).astype(np.float32)
    if not np.abs(factor).max(initial=0) <= _RANGE:  # also where it is not a number
        raise Refused("scales that are too large")
    shift, expression, numbers, kept = SHIFT + lowest + zero, "w", list[float](), -1
    constants, rest = [factor], op.steps[2 + relus :]
    first, width, unit = lowest, span, scale
    if rest:
        shift, expression = SHIFT, "shifted"
    if _has_channels(node, rest):
        count = next((i for i, step in enumerate(rest) if isinstance(step, Scaling)), len(rest))
        then = (*rest, op.result)[count]
        assert isinstance(then, Scaling)
        channels = Channels(node, op, 1, real=_values(first, width, unit))
        channels.add(*rest[:count])
        lines, rest = channel_lines(channels, then, first, unit), rest[count + 1 :]
        constants += [lines.slopes, lines.starts]
        numbers += [lines.width, SHIFT if rest else SHIFT + lines.low]
        first, width, unit = lines.low - stored_bounds(then)[1], lines.width, stored_bounds(then)[0]
    if rest:
        pairs = Pairs(node, op, 1, real=_values(first, width, unit), slopes=(unit, 0.0))
        pairs.add(*rest)
        line = fitted(pairs, op.result, first)
        kept, expression = pairs.kept, line.expression(len(numbers) + 3)
        numbers += line.numbers
    passed = [float(np.float32(-lowest / span)), span, shift, *numbers, _nearest(factors, lowest, span)]
    names = [f"q{i}" for i in range(len(passed) - 1)]
    declared = "".join(f", const float {name}" for name in names)
    of_channels = len(constants) > 1
    defines: dict[str, object] = {
        **result.defines,
        "RESULT_ARGS": f"{result.defines['RESULT_ARGS']}{_LINES * of_channels}{declared}, const float nearest",
        "WIDE": work_n // 4,
        "WORDS_T": _WORDS[work_n // 4],
        "NEAREST": "nearest",
        "DIRECT_1(s, f, kept, distance)": f"direct_1(s, f, kept, distance{''.join(f', {name}' for name in names)})",
        **({"CHANNEL_LINES": True} if of_channels else {}),
    }
    if kept >= 0:
        signed = node.given(kept).dtype is DType.INT8
        defines |= {"KEPT_BYTES": f"in{kept}", "KEPT_SIGN": "0x80808080u" if signed else "0u"}
    own = (*map(Constant, constants[:1]), *result.own[1:], *map(Constant, constants[1:]))
    own += tuple(Scalar(np.float32(number)) for number in passed)
    return dataclasses.replace(
        result, source=result.source + _function(expression, declared, of_channels), defines=defines, own=own
    )


def _function(expression: str, declared: str, of_channels: bool) -> str:
    """The C function that makes a stored number of a sum, by an expression with the parameters in `declared`."""
    parameters = ", const float slope, const float start" * of_channels
    return f"""{_SATURATED}
static uint direct_1(const int sum, const float f{parameters}, const float kept, float* distance{declared}) {{
  const float t = saturated((float)sum, f, q0), w = fma(t, q1, q2), n = w - q2;
  *distance = fabs(fma(t, q1, -n));
{_OF_CHANNELS if of_channels else _OF_ALL}  return as_uint({expression});
}}
"""


def _has_channels(node: TypedNode, steps: Sequence[QuantizedStep | Scaling]) -> bool:
    """Whether the first of the steps reads a number of each channel."""
    step = steps[0] if steps else None
    given_inputs = step.inputs if isinstance(step, QuantizedStep) else ()
    return any(i is not None and i >= 0 and is_of_channels(node, i) for i in given_inputs)


def _values(first: float, width: float, unit: float) -> Floats:
    """The real values of so many whole numbers from the first on, as rows."""
    return np.arange(first, first + width + 1, dtype=np.float32)[:, np.newaxis] * np.float32(unit)


def _nearest(factors: Factors, lowest: float, span: float) -> float:
    """The greatest distance from a whole number at which roundings cannot have moved a sum across a half.

    A factor and its product with a sum are rounded, sums too from `_EXACT` on, and where the range starts.
    """
    start = -lowest / span
    roundings = 1 if _greatest_sum(factors) < _EXACT else 2
    moved = roundings * max(start, 1 - start) * UNIT + UNIT / 2 + abs(float(np.float32(start)) - start)
    return 0.5 - 1.01 * span * moved - UNIT


def _greatest_sum(factors: Factors) -> int:
    """No sum is greater."""
    source, counts = factors.node.given(0), factors.counts
    limits = np.iinfo(source.dtype.numpy)
    widest = max(factors.zero_point - int(limits.min), int(limits.max) - factors.zero_point)
    magnitudes = factors.weights.fact("magnitudes", lambda whole: np.abs(whole).reshape(len(whole), -1).sum(1, dtype=np.int64))
    return int((magnitudes * widest + (0 if counts is None else np.abs(counts.astype(np.int64)))).max(initial=0))
