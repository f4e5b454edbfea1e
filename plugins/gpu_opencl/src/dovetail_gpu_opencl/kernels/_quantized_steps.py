"""Generates the C code of a quantized operator's steps, each of which rounds once, from sums or elements to stored numbers.

The statements compute in float, one rounding for each operator as in the original graph, so contraction is off. All
numbers come as arguments: operators with steps of the same kinds share a program, which drivers for CPUs take long to build.
"""

import math
from collections.abc import Hashable, Mapping

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.device import PLAIN, Binary, DType, Eltwise, PostOp, Sum, TensorType, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.broadcast import Access, access_to, broadcasts, followed
from dovetail_gpu_opencl.launch import Argument, Constant, Read
from dovetail_gpu_opencl.sizes import RuntimeSizes
from dovetail_gpu_opencl.source import C_TYPES, literal
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep, Scaling
from dovetail_ops_onnx.relu import Relu

__all__ = [
    "WHOLE",
    "Refused",
    "Steps",
    "elementwise_access",
    "is_as_large",
    "places_of",
    "reading_of",
    "relus_before",
    "steps_behind",
    "stored_bounds",
]

SHIFT = 12582912
"""Behind a sum with it, a float has a whole number, halves rounded to even, in its low bits."""
WHOLE = f"(({{0}}) + {SHIFT}.0f - {SHIFT}.0f)"
"""A float rounded to a whole number, halves to even, where it is below 2^22; greater ones stay so great. Drivers for CPUs compute
their rint one element at a time."""

_ROUNDED = f"""static float rounded_1(const float s, const float scale, const float inverse) {{
  const float t = s * inverse, r = {WHOLE.format("t")};
  // Up to 1024, beyond what can be stored, t is less than this away from the quotient.
  return fabs(fabs(t - r) - 0.5f) > 0.000244140625f ? r : EXACT;
}}
"""
_BOUNDED = """#ifdef MATRIX_UNITS
static float bounded_1(float s, const float least, const float most) {
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(s) : "f"(least));
  asm("min.NaN.f32 %0, %0, %1;" : "+f"(s) : "f"(most));
  return s;
}
#else
static float bounded_1(float s, const float least, const float most) {
  s = s < least ? least : s;
  return s > most ? most : s;
}
#endif
"""
"""A number within bounds, or NaN."""
_ARITHMETIC = {"add", "sub", "rsub", "mul", "div", "rdiv"}
_GREATEST = 1e37
"""Quotients up to this are real numbers."""
NUMBERS = "qn"
"""The argument with the numbers of all steps."""


class Refused(Exception):  # an answer, not an error
    """Raised inside a kernel that does not run the operator; the text has the reason."""


def stored_bounds(scaling: Scaling) -> tuple[float, float, float, float]:
    """Scale, zero point, least and greatest stored number. Raises `Refused` where there are several scales."""
    if not scaling.is_single:
        raise Refused("activations with several scales; accepted: one scale and zero point")
    limits = np.iinfo(scaling.dtype.numpy)
    return float(scaling.scale.reshape(())), float(scaling.zero_point.reshape(())), float(limits.min), float(limits.max)


def load(access: Access, name: str, dtype: DType, vec: int) -> str:
    """An operand as the C expression of a float, or of a vector of floats."""
    return access.load(name, C_TYPES[dtype], "float", vec)


@dataclass
class _Scaled:
    """A value that is a whole number times `product`, by the lines from the `first` on: those of `exact`, on a number `s`."""

    first: int
    product: float
    exact: list[str]


@dataclass
class Steps:
    """Steps under construction: functions `steps_1` and `steps_v`, the latter for `vec` consecutive elements.

    Each takes the value `s`, the index `o` of the result, and `parameters`; `passed` is how the kernel calls them. With
    `branches`, for GPUs, they divide only where a product by the reciprocal comes near a half; with `quick`, too, they give NaN
    there and for NaN, so that one branch serves several numbers. Vectors do not leave the last `run_axes` axes; with 0 they may.
    With `low_bytes`, for CPUs, the last rounding of vectors leaves stored numbers in the low bytes of floats.
    """

    node: TypedNode
    op: Quantized
    vec: int
    numbers: list[float] = field(default_factory=list)
    operands: list[int] = field(default_factory=list)
    lines: dict[int, list[str]] = field(default_factory=dict)
    kinds: list[PostOp] = field(default_factory=list)
    branches: bool = False
    quick: bool = False
    run_axes: int = 1
    low_bytes: bool = False
    limit: float = math.inf
    """No value is greater, up to signs; infinity where that is not known, or the value may be NaN."""
    sizes: RuntimeSizes = field(default_factory=lambda: RuntimeSizes("step_n"))
    accesses: Mapping[int, Access | None] | None = None
    """How inputs are read, by `sizes`, where that is known."""
    scaled: "_Scaled | None" = None
    """With `branches`: the value, where it is a whole number times what all lines from some on multiply it by."""
    functions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lines = {1: [], self.vec: []}

    def add(self, *steps: QuantizedStep | Scaling) -> None:
        """Append the operator's next step. Raises `Refused`."""
        for step in steps:
            if isinstance(step, Scaling):
                self.round(step)
            else:
                self._chain(step)

    def round(self, scaling: Scaling, *, last: bool = False) -> None:
        """To what the quantization can hold: as real numbers, or with `last` as they are stored. NaN is stored as 0."""
        if not self.branches:
            self._store(scaling, last, self.limit < _GREATEST * stored_bounds(scaling)[0], divides=True)
            return
        scale, zero, least, most = (self.number(x) for x in stored_bounds(scaling))
        name = self._rounded_product(self.scaled, scaling, scale) if self.scaled and len(self.scaled.exact) > 1 else ""
        inverse = self.number(reciprocal(stored_bounds(scaling)[0])) if self.branches and not name else ""
        for vec, lines in self.lines.items():
            quotient, width = WHOLE.format(f"s / {scale}"), "1" if vec == 1 else "v"
            if name:
                each = [f"{name}({'s' if vec == 1 else f's.s{i}'}, {NUMBERS})" for i in range(vec)]
                quotient = f"({vector(vec)})({', '.join(each)})"
            elif self.branches:
                quotient = f"rounded_{width}(s, {scale}, {inverse})"
            lines.append(f"  s = {quotient} + {zero};\n")
            lines.append(self._bounded(vec, least, most))
        self._end(scaling, zero, scale, last)

    def _end(self, scaling: Scaling, zero: str, scale: str, last: bool) -> None:
        """Makes a real number of a stored one, unless it is the last."""
        if last:
            return
        for lines in self.lines.values():
            lines.append(f"  s = s - {zero};\n")
        product = f"  s = s * {scale};\n"
        self.scaled = _Scaled(len(self.lines[1]), stored_bounds(scaling)[0], [product]) if self.branches else None
        for lines in self.lines.values():
            lines.append(product)

    def _rounded_product(self, own: "_Scaled", scaling: Scaling, scale: str) -> str:
        """The name of a function that rounds the whole number times all factors so far, in place of the lines with these.

        It multiplies by one number in their place, and does as they do where that comes near a half.
        """
        name = f"rounded_product{len(self.functions)}_1"
        with np.errstate(all="ignore"):
            factor = self.number(float(np.float32(np.float64(own.product) / np.float64(stored_bounds(scaling)[0]))))
        # Each operation rounds by 2^-24 of what is up to 1024, beyond what can be stored.
        near, whole = literal((len(own.exact) + 3) * 2.0**-14, "float"), WHOLE.format(f"s / {scale}")
        for lines in self.lines.values():
            del lines[own.first :]
        exact = "  return NAN;\n" if self.quick else f"{''.join(own.exact)}  return {whole};\n"
        self.functions.append(
            f"static float {name}(float s, __global const float* restrict {NUMBERS}) {{\n"
            f"  const float t = s * {factor}, r = {WHOLE.format('t')};\n"
            f"  if (fabs(fabs(t - r) - 0.5f) > {near}) return r;\n{exact}}}\n"
        )
        return name

    def whole(self, scaling: Scaling, relus: int, *, last: bool, finite: bool) -> None:
        """`round` for a value that counts in units of the scale and is rounded already, with `relus` before that.

        `finite` says that the value is not NaN.
        """
        if not self.branches:
            self._store(scaling, last, finite, relus=relus)
            return
        scale, zero, least, most = (self.number(x) for x in stored_bounds(scaling))
        for vec, lines in self.lines.items():
            v = vector(vec)
            lines += [f"  s = s < 0.0f ? ({v})(0) : s;\n"] * min(relus, 1)
            lines.append(f"  s = s + {zero};\n")
            lines.append(self._bounded(vec, least, most))
        self._end(scaling, zero, scale, last)

    def _store(self, scaling: Scaling, last: bool, finite: bool, *, relus: int = 0, divides: bool = False) -> None:
        """`round` and `whole` for CPUs, with as few operations for each number: a whole number is kept within bounds that are
        moved by the zero point, or by `SHIFT`, whose rounding also is that of a quotient."""
        scale, zero, least, most = stored_bounds(scaling)
        least = max(least, zero) if relus and finite else least
        unit = self.number(scale)
        for vec, lines in self.lines.items():
            v, in_low_bytes = vector(vec), last and vec > 1 and self.low_bytes
            if relus and not finite:
                lines.append(f"  s = s < 0.0f ? ({v})(0) : s;\n")
            start = SHIFT if in_low_bytes else 0.0 if last else -zero
            value = f"s / {unit}" if divides else "s"
            if divides:
                value = f"{value} + {SHIFT}.0f" if in_low_bytes else WHOLE.format(value)
            if last:
                value = f"({value}) + {self.number(zero if divides else zero + start)}"
            lines.append(f"  s = {value};\n")
            if not finite:
                lines.append(f"  s = s == s ? s : ({v})({self.number(start)});\n")
            low, high = self.number(least + start), self.number(most + start)
            lines.append(f"  s = s < {low} ? ({v})({low}) : s; s = s > {high} ? ({v})({high}) : s;\n")
            if not last:
                lines.append(f"  s = s * {unit};\n")
        self.limit = max(abs(least - zero), abs(most - zero)) * scale

    def _bounded(self, vec: int, least: str, most: str) -> str:
        """The statement that keeps the value within bounds, NaN as 0."""
        if self.quick:
            return f"  s = bounded_1(s, {least}, {most});\n"
        v = vector(vec)
        return f"  s = s == s ? s : ({v})(0); s = fmin(fmax(s, ({v})({least})), ({v})({most}));\n"

    def start(self, index: int) -> None:
        """The value is at first that of an input."""
        loads, scaling = self._loads(index), self.op.scalings[index]
        for vec, lines in self.lines.items():
            lines.append(f"  s = {loads[vec]};\n")
        if scaling is not None:
            scale, zero, _, _ = (self.number(x) for x in stored_bounds(scaling))
            self._end(scaling, zero, scale, last=False)
        self.limit = self._limit_of(index)

    def number(self, value: float) -> str:
        """The C expression of a number that is passed."""
        self.numbers.append(value)
        return f"{NUMBERS}[{len(self.numbers) - 1}]"

    def operand(self, index: int) -> dict[int, str]:
        """The real value of an input of the operator that is read where the result is written, for each width."""
        found, scaling = self._loads(index), self.op.scalings[index]
        if scaling is None:
            return found
        scale, zero, _, _ = (self.number(x) for x in stored_bounds(scaling))
        return {vec: f"({text} - {zero}) * {scale}" for vec, text in found.items()}

    def _limit_of(self, index: int) -> float:
        """As `limit`, for an input."""
        scaling = self.op.scalings[index]
        if scaling is None:
            return math.inf
        scale, zero, least, most = stored_bounds(scaling)
        return max(abs(least - zero), abs(most - zero)) * scale

    def _loads(self, index: int) -> dict[int, str]:
        """The value of an input as it is stored, in float."""
        tensor, result = self.node.given(index), self.node.outputs[0]
        access = (
            elementwise_access(tensor, result, self.run_axes, self.sizes, index)
            if self.accesses is None
            else self.accesses[index]
        )
        if access is None:
            raise Refused(f"operand {tensor} does not broadcast to {result}")
        self.operands.append(index)
        return {vec: load(access, f"in{index}", tensor.dtype, vec) for vec in self.lines}

    def _chain(self, step: QuantizedStep) -> None:
        result = self.node.outputs[0].with_dtype(DType.FLOAT32)
        names = ["" if i is None else str(i) for i in step.inputs]
        types = [None if i is None else result if i < 0 else self.node.given(i).with_dtype(DType.FLOAT32) for i in step.inputs]
        self.chain(step.op.post_ops(types, names, names.index("-1")), step.op.key)

    def chain(self, chain: tuple[PostOp, ...] | None, key: str) -> None:
        """The operator `key` as post-ops whose operands are indices of inputs. Raises `Refused`."""
        if chain is None or any(isinstance(p, Sum) for p in chain):
            raise Refused(f"{key} on quantized values")
        for post_op in chain:
            self._scale(post_op)
            adds = isinstance(post_op, Binary) and post_op.algorithm in ("add", "sub", "rsub")
            self.limit += self._limit_of(int(post_op.operand)) if isinstance(post_op, Binary) and adds else math.inf
            loads = dict.fromkeys(self.lines, "") if isinstance(post_op, Eltwise) else self.operand(int(post_op.operand))
            for vec, lines in self.lines.items():
                lines.append(post_ops.statement(post_op, vector(vec), "float", iter([loads[vec]])))
        self.kinds += chain

    def _scale(self, post_op: PostOp) -> None:
        """Notes a factor of the value; what else is done to it ends that."""
        own, number = self.scaled, self._single(post_op) if self.scaled is not None else None
        if own is None or number is None or not isinstance(post_op, Binary):
            self.scaled = None
            return
        sign = "*" if post_op.algorithm == "mul" else "/"
        with np.errstate(all="ignore"):
            own.product = float(own.product * number if sign == "*" else own.product / number)
        if not 2.0**-60 < abs(own.product) < 2.0**60:  # single steps may leave the range of normal numbers
            self.scaled = None
            return
        own.exact.append(f"  s = s {sign} {self.number(float(number))};\n")

    def _single(self, post_op: PostOp) -> np.float64 | None:
        """The constant number that a post-op multiplies or divides by."""
        if not isinstance(post_op, Binary) or post_op.algorithm not in ("mul", "div"):
            return None
        value, scaling = self.node.given(int(post_op.operand)).value, self.op.scalings[int(post_op.operand)]
        if value is None or value.size != 1:
            return None
        number = np.float32(value.reshape(())[()])
        if scaling is not None:
            scale, zero, _, _ = stored_bounds(scaling)
            number = (number - np.float32(zero)) * np.float32(scale)
        return np.float64(number)

    @property
    def parameters(self) -> str:
        """The parameters of the functions, and of the kernel, after others."""
        inputs = "".join(
            f", __global const {C_TYPES[self.node.given(i).dtype]}* restrict in{i}" for i in dict.fromkeys(self.operands)
        )
        return f", __global const float* restrict {NUMBERS}{inputs}{self.sizes.parameters}"

    @property
    def passed(self) -> str:
        """The names of the parameters."""
        return f", {NUMBERS}" + "".join(f", in{i}" for i in dict.fromkeys(self.operands)) + self.sizes.passed

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The arguments of the kernel for them."""
        return (*self.places, *self.sizes.arguments)

    @property
    def places(self) -> tuple[Argument, ...]:
        """Those that are the same for all sizes."""
        numbers: NDArray[np.float32] = np.array(self.numbers or [0], np.float32)
        return (Constant(numbers), *[Read(self.node.node.inputs[i]) for i in dict.fromkeys(self.operands)])

    @property
    def source(self) -> str:
        """The functions. Raises `Refused`."""
        if self.quick and not all(isinstance(p, Binary) and p.algorithm in _ARITHMETIC for p in self.kinds):
            raise Refused("operators that may give numbers for NaN")
        text = (
            "#pragma OPENCL FP_CONTRACT OFF\n"
            + (_BOUNDED if self.quick else "")
            + (_branches(self.vec).replace("EXACT", "NAN" if self.quick else WHOLE.format("s / scale")) if self.branches else "")
            + "".join(post_ops.own_functions(self.kinds, "float", vec) for vec in sorted({1, self.vec}))
            + "".join(self.functions)
        )
        for vec, name in ((1, "steps_1"), (self.vec, "steps_v")) if self.vec > 1 else ((1, "steps_1"),):
            v = vector(vec)
            text += f"static {v} {name}({v} s, const int o{self.parameters}) {{\n{''.join(self.lines[vec])}  return s;\n}}\n"
        return text


def _branches(vec: int) -> str:
    """The functions that round by the reciprocal, for single numbers and for vectors."""
    if vec == 1:
        return _ROUNDED
    v, each = vector(vec), ", ".join(f"rounded_1(s.s{i}, scale, inverse)" for i in range(vec))
    return f"{_ROUNDED}static {v} rounded_v(const {v} s, const float scale, const float inverse) {{ return ({v})({each}); }}\n"


def steps_behind(node: TypedNode, op: Quantized, vec: int, *, branches: bool, quick: bool = False) -> Steps:
    """All steps behind the first, the last rounding included. Raises `Refused`."""
    steps = Steps(node, op, vec, branches=branches, quick=quick)
    steps.add(*op.steps[1:])
    if op.result is not None:
        steps.round(op.result, last=True)
    return steps


def elementwise_access(tensor: TensorType, result: TensorType, run_axes: int, sizes: RuntimeSizes, key: int) -> Access | None:
    """As `access_to`; an operand of the result's shape has the result's layout, and others lie along it."""
    if tensor.size == 1:
        return Access("0", "same")
    if is_as_large(tensor, result):
        return Access("o", "next")
    if result.layout != PLAIN:
        if not broadcasts(tensor, result) or not post_ops.lies_along(tensor, result, result.layout):
            return None
        tensor, result = post_ops.in_order(tensor, result), post_ops.in_order(result, result)
    return access_to(tensor, result, run_axes, sizes, key)


def places_of(tensor: TensorType, result: TensorType) -> Hashable:
    """All of the result on which the access to an operand depends: mostly not the sizes of the axes before the operand's."""
    layout = result.layout
    if not broadcasts(tensor, result) or (layout != PLAIN and not post_ops.lies_along(tensor, result, layout)):
        return result.dims, layout
    if layout != PLAIN:
        tensor, result = post_ops.in_order(tensor, result), post_ops.in_order(result, result)
    axes = followed(tensor, result.dims)
    return layout, axes, result.dims[axes.index(True) if True in axes else len(axes) :]


def reading_of(tensor: TensorType | None, result: TensorType) -> Hashable:
    """All of the sizes and layouts on which it depends how an operand is read."""
    if tensor is None or is_as_large(tensor, result):
        return tensor is None
    return tensor.dims, () if tensor.size == 1 else places_of(tensor, result)


def is_as_large(tensor: TensorType, result: TensorType) -> bool:
    """Whether each element of the result has its own of an operand, in other sizes too."""
    return tensor.dims == result.dims and (tensor.value is None or result.layout != PLAIN or 1 not in tensor.dims)


def reciprocal(scale: float) -> float:
    """1 / scale in float32; infinity, which makes a NaN of 0, where that is too large."""
    with np.errstate(all="ignore"):
        return float(np.float32(1) / np.float32(scale))


def vector(vec: int) -> str:
    """The C type of so many floats."""
    return "float" if vec == 1 else f"float{vec}"


def relus_before(op: Quantized) -> tuple[int, Scaling | None]:
    """How many steps behind the first only cut off what is negative, and the quantization that comes then, if one does."""
    rest = (*op.steps[1:], op.result)
    count = next((i for i, step in enumerate(rest) if not (isinstance(step, QuantizedStep) and isinstance(step.op, Relu))), 0)
    following = rest[count]
    return count, following if isinstance(following, Scaling) else None
