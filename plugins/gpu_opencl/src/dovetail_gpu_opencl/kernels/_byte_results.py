"""The steps after sums of 8-bit numbers in float, for 8-bit results that are stored out of registers: cl/byte_results.cl.

A value is rounded by adding 1.5 * 2^23. Where a sum times its factor is so near a half that the roundings before may have moved
it to the other side, the element is computed once more as `_quantized.py` defines it. Later quotients are exact: a product by
the reciprocal, corrected twice by its remainder (Markstein, "Computation of elementary functions on the IBM RISC System/6000
processor", 1990).
"""

import dataclasses

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import Binary, DType, Eltwise, PostOp, TypedNode
from dovetail_gpu_opencl.kernels._integer import EIGHT_BITS, Result
from dovetail_gpu_opencl.kernels._quantized import Factors
from dovetail_gpu_opencl.kernels._quantized_steps import Refused, Steps, given, reciprocal, relus_before, stored_bounds
from dovetail_gpu_opencl.launch import Argument, Scalar
from dovetail_ops_onnx.quantized import Scaling

__all__ = ["direct_result", "is_direct"]

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
_WORDS = {4: "uint", 8: "uint2", 16: "uint4"}


@dataclass
class DirectSteps(Steps):
    """Steps of one element, whose numbers are passed by value. The function returns the bits of a float, whose low byte is the
    result, and sets `*distance` to the distance of the sum, times its factor, to the whole number that it was rounded to."""

    largest: float = 0.0
    """The greatest number that the product may be where its rounding counts."""
    kept: int = -1
    """The input that is read where the result is written."""

    def number(self, value: float) -> str:
        self.numbers.append(value)
        return f"q{len(self.numbers) - 1}"

    def round(self, scaling: Scaling, *, last: bool = False) -> None:
        scale = _within_range(stored_bounds(scaling)[0])
        by, inverse = self.number(scale), self.number(reciprocal(scale))
        self.lines[1].append(f"  {{ float t = s * {inverse};\n")
        self.lines[1] += [f"    t = fma(fma(-t, {by}, s), {inverse}, t);\n"] * 2
        self._bounded_whole(scaling, "t + {shift}", -np.inf, last)

    def whole(self, scaling: Scaling, relus: int, *, last: bool) -> None:
        scale, zero, least, most = stored_bounds(scaling)
        _within_range(scale)
        self.largest = 1 + max(zero - least, most - zero)
        self.lines[1].append("  {\n")
        self._bounded_whole(scaling, "fma(s, f, {shift})", 0.0 if relus else -np.inf, last)
        self.lines[1].insert(-1, "    *distance = fabs(fma(s, f, -r));\n")

    def _bounded_whole(self, scaling: Scaling, text: str, bottom: float, last: bool) -> None:
        """Ends a block: `text` is a value plus a shift, and `r` the whole number. `bottom` is the least value, in units of the
        scale."""
        scale, zero, least, most = stored_bounds(scaling)
        low, high = max(least - zero, bottom), most - zero
        added = zero if last and zero % 2 == 0 else 0.0  # an odd one would take halves to odd numbers
        shift = self.number(_SHIFT + added)
        self.lines[1].append(f"    const float w = {text.format(shift=shift)}, r = w - {shift};\n")
        if last:
            rest = "" if added == zero else f" + {self.number(zero)}"
            low, high = low + _SHIFT + added, high + _SHIFT + added
            self.lines[1].append(f"    s = fmin(fmax(w, {self.number(low)}), {self.number(high)}){rest}; }}\n")
        else:
            bounded = f"fmin(fmax(r, {self.number(low)}), {self.number(high)})"
            self.lines[1].append(f"    s = {bounded} * {self.number(scale)}; }}\n")

    def operand(self, index: int) -> dict[int, str]:
        tensor, scaling = given(self.node, index), self.op.scalings[index]
        if scaling is None or tensor.dtype not in EIGHT_BITS or tensor.dims != self.node.outputs[0].dims:
            raise Refused(f"an operand {tensor}; accepted: 8-bit numbers of the result's shape")
        if self.kept not in (-1, index):
            raise Refused("several operands")
        self.kept = index
        scale, zero, least, _ = stored_bounds(scaling)
        return {1: f"(kept - {self.number(_BYTE + zero - least)}) * {self.number(_within_range(scale))}"}

    def chain(self, chain: tuple[PostOp, ...] | None, key: str) -> None:
        if chain is None or not all(_is_simple(post_op) for post_op in chain):
            raise Refused(key)
        super().chain(chain, key)

    @property
    def source(self) -> str:
        declared = "".join(f", const float q{i}" for i in range(len(self.numbers)))
        body = "".join(self.lines[1])
        head = f"static uint direct_1(const int sum, const float f, const float kept, float* distance{declared})"
        return f"#pragma OPENCL FP_CONTRACT OFF\n{head} {{\n  float s = (float)sum;\n{body}  return as_uint(s);\n}}\n"


def is_direct(node: TypedNode, maps: int, work_n: int) -> bool:
    """Whether results are 8-bit numbers, and the neighbours of an item all there or all beyond the last."""
    return node.outputs[0].dtype in EIGHT_BITS and maps % (work_n // 4) == 0


def direct_result(factors: Factors, result: Result, work_n: int) -> Result:
    """The result with the functions for sub-groups whose tiles are `work_n` wide. Raises `Refused`."""
    node, op = factors.node, factors.op
    relus, scaling = relus_before(op)
    if scaling is None or op.result is None or factors.counts is None:
        raise Refused("sums that are not quantized at once, or a bias that is not a whole number of them")
    steps, at = DirectSteps(node, op, 1), 1 + relus
    steps.whole(scaling, relus, last=at == len(op.steps))
    steps.add(*op.steps[at + 1 :])
    if at < len(op.steps):
        steps.round(op.result, last=True)
    with np.errstate(all="ignore"):
        greatest = float(np.abs((factors.units / stored_bounds(scaling)[0]).astype(np.float32)).max(initial=0))
    if not greatest <= _RANGE:  # also where it is not a number
        raise Refused(f"a factor {greatest}")
    roundings = 1 if _greatest_sum(factors) < _EXACT else 2
    nearest = 0.5 - 1.01 * (roundings * steps.largest + 1) * _UNIT
    numbers = [*steps.numbers, nearest]
    names = [f"q{i}" for i in range(len(steps.numbers))]
    passed = "".join(f", {name}" for name in names)
    declared = "".join(f", const float {name}" for name in (*names, "nearest"))
    defines: dict[str, object] = {
        **result.defines,
        "RESULT_ARGS": f"{result.defines['RESULT_ARGS']}{declared}",
        "WIDE": work_n // 4,
        "WORDS_T": _WORDS[work_n // 4],
        "NEAREST": "nearest",
        "DIRECT_1(s, f, kept, distance)": f"direct_1(s, f, kept, distance{passed})",
    }
    if steps.kept >= 0:
        signed = given(node, steps.kept).dtype is DType.INT8
        defines |= {"KEPT_BYTES": f"in{steps.kept}", "KEPT_SIGN": "0x80808080u" if signed else "0u"}
    arguments: tuple[Argument, ...] = (*result.arguments, *(Scalar(np.float32(number)) for number in numbers))
    return dataclasses.replace(result, source=result.source + steps.source, defines=defines, arguments=arguments)


def _greatest_sum(factors: Factors) -> int:
    """No sum is greater."""
    source, counts = given(factors.node, 0), factors.counts
    limits = np.iinfo(source.dtype.numpy)
    widest = max(factors.zero_point - int(limits.min), int(limits.max) - factors.zero_point)
    whole = np.abs(np.moveaxis(factors.weights, factors.axis, 0).reshape(len(factors.units), -1)).sum(1, dtype=np.int64)
    return int((whole * widest + (0 if counts is None else np.abs(counts.astype(np.int64)))).max(initial=0))


def _within_range(scale: float) -> float:
    if not 1 / _RANGE <= scale <= _RANGE:
        raise Refused(f"a scale {scale}")
    return scale


def _is_simple(post_op: PostOp) -> bool:
    if isinstance(post_op, Eltwise):
        return post_op.algorithm == "relu" and post_op.alpha == 0 and post_op.scale == 1
    return isinstance(post_op, Binary) and post_op.algorithm in ("add", "sub", "rsub")
