"""Quantized operators, which a graph pass makes of DequantizeLinear, operators and QuantizeLinear: on the stored numbers.

A sum that is quantized at once is rounded as QLinearConv and QLinearMatMul define it, in double: bias and sum in whole numbers,
times x_scale * w_scale, divided by y_scale. In float it is computed first, and again where that comes near a half.
"""

import dataclasses
import math
import re
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import PLAIN, DType, LayerConfig, Reason, Refusal, TypedNode
from dovetail.locks import cached_property
from dovetail.op import Operator
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.broadcast import Access
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.elementwise import elementwise_configurations
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, spread
from dovetail_gpu_opencl.kernels._conv_integer import SPARSE, row_defines, windows_configurations, windows_launches
from dovetail_gpu_opencl.kernels._integer import EIGHT_BITS, Result, Weights
from dovetail_gpu_opencl.kernels._integer_rows import VECTOR, Sums, is_sparse, packed
from dovetail_gpu_opencl.kernels._quantized_steps import (
    WHOLE,
    Refused,
    Steps,
    elementwise_access,
    reading_of,
    relus_before,
    stored_bounds,
)
from dovetail_gpu_opencl.kernels._spatial import spatial_defines
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Null, Read, Write, ints
from dovetail_gpu_opencl.packed import PackedConstants
from dovetail_gpu_opencl.sizes import RuntimeSizes
from dovetail_gpu_opencl.source import C_TYPES, assemble, vector_at
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.gemm import Gemm
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep, Scaling

__all__ = [
    "Factors",
    "QuantizedConv",
    "QuantizedElementwise",
    "QuantizedKernel",
    "QuantizedMatMul",
    "QuantizedSums",
    "Scales",
    "result_of",
]


class QuantizedKernel(CLKernel):
    """The base of the kernels."""

    has_epilogue = False
    dtypes = EIGHT_BITS | {DType.FLOAT32}
    kind: ClassVar[str] = "CPU"
    """The kind of device that the kernel is made for."""

    def check(self, node: TypedNode) -> Refusal | None:
        try:
            self.parts(node)
        except Refused as error:
            return Refusal(Reason.ATTRIBUTE, str(error))
        return None

    @abstractmethod
    def parts(self, node: TypedNode) -> object:
        """The parts of the launches. Raises `Refused`."""

    def chain(self, node: TypedNode) -> tuple[str, ...]:
        return self.op(node).chain

    def applies_to(self, node: TypedNode, main: type[Operator]) -> Refusal | None:
        """Refuses other operators than `main`, and other kinds of devices than `kind`."""
        op = self.op(node)
        if type(op.main) is not main:
            return Refusal(Reason.OPERATOR, op.key)
        return Refusal(Reason.CAPABILITY, f"made for {self.kind}s") if self.caps.kind != self.kind else None

    def op(self, node: TypedNode) -> Quantized:
        """The operator."""
        assert isinstance(node.op, Quantized)
        return node.op


S = TypeVar("S", bound="Scales")


# --- sums of products ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scales:
    """The meaning of sums of products: real = (sum + bias) * unit, for so many channels. What few ask for is computed then."""

    node: TypedNode
    op: Quantized
    channels: int
    alpha: float
    beta: float

    @cached_property
    def units(self) -> NDArray[np.float64]:
        """The real value of 1 in each channel's sum. Raises `Refused`."""
        own = self.op.scalings[1]
        assert own is not None
        scales = stored_bounds(self._source)[0] * own.scale.astype(np.float64).reshape(-1) * self.alpha
        return np.broadcast_to(scales, self.channels)

    @cached_property
    def bias(self) -> NDArray[np.float64]:
        """The real bias. Raises `Refused`."""
        return _bias(self.node, self.op, self.channels) * self.beta

    @property
    def zero(self) -> bytes:
        """The zero point of the source as it is stored."""
        return self._source.zero_point.tobytes()

    @property
    def zero_point(self) -> int:
        """The zero point of the source as a number."""
        return int(self._source.zero_point.reshape(()))

    @property
    def _source(self) -> Scaling:
        scaling = self.op.scalings[0]
        assert scaling is not None
        return scaling

    @cached_property
    def counts(self) -> NDArray[np.int32] | None:
        """The bias in units of the sums; None where these are not whole numbers. float32 may have rounded the stored int32."""
        with np.errstate(all="ignore"):
            counts = self.bias / self.units
            whole = np.rint(counts)
            near = (np.abs(counts - whole) <= 1e-3 + 2e-7 * np.abs(whole)) & (np.abs(whole) < 2**31)
        return whole.astype(np.int32) if near.all() else None


@dataclass(frozen=True, eq=False)
class Factors(Scales):
    """A source, and constant weights for the channels of the result."""

    weights: Weights

    @staticmethod
    def of(
        shared: PackedConstants, node: TypedNode, op: Quantized, axis: int, alpha: float = 1.0, beta: float = 1.0
    ) -> "Factors":
        """Those whose weights have their channels of the result along `axis`. Raises `Refused`."""
        tensor, source, own = node.given(1), op.scalings[0], op.scalings[1]
        if tensor.value is None or source is None or own is None:
            raise Refused("factors that are not both quantized, or a second one that is not constant")
        if max(own.scale.size, own.zero_point.size) > 1 and own.axis % tensor.rank != axis:
            raise Refused(f"scales of the weights along axis {own.axis}; accepted: {axis}")
        weights = Weights.of(shared, tensor.value, own.zero_point, axis)
        return Factors(node, op, tensor.dims[axis], alpha, beta, weights)

    @property
    def product(self) -> tuple[int, int, int]:
        """Rows, columns and depth of a product of matrices."""
        *rows, depth = self.node.given(0).dims
        return math.prod(rows), self.channels, depth


def _bias(node: TypedNode, op: Quantized, channels: int) -> NDArray[np.float64]:
    """The real bias; zeros without one. Raises `Refused`."""
    step = op.steps[0]
    assert isinstance(step, QuantizedStep)
    if len(step.inputs) < 3 or step.inputs[2] is None:
        return np.zeros(channels)
    tensor = node.given(step.inputs[2])
    value = tensor.value
    if (
        value is None
        or op.scalings[step.inputs[2]] is not None
        or value.size not in (1, channels)
        or value.size not in value.shape[-1:]
    ):
        raise Refused(f"a bias {tensor}; accepted: a constant row of {channels} real numbers")
    return np.broadcast_to(value.astype(np.float64).reshape(-1), channels)


def result_of(factors: Scales, caps: Capabilities, vec: int, *, quick: bool = False) -> tuple[Result, Argument]:
    """The steps after the sums, for vectors too where `vec` is not 1, and the bias that starts the sums.

    With `quick`, for GPUs, STORED is a float, and NaN where `Steps` says so. Raises `Refused`.
    """
    node, op = factors.node, factors.op
    (relus, scaling), is_gpu = relus_before(op), caps.kind == "GPU"
    counts = None if scaling is None else factors.counts
    value, parameters, arguments = _value(factors, scaling, counts is None and bool(factors.bias.any()), caps, vec)
    low_bytes = op.result is not None and vec > 1 and not is_gpu
    steps = Steps(node, op, vec, branches=is_gpu, quick=quick, low_bytes=low_bytes)
    at = 1 + relus if scaling is not None else 0
    if scaling is not None:
        steps.whole(scaling, relus, last=at == len(op.steps), finite=all(np.isfinite(one.array).all() for one in arguments))
    steps.add(*op.steps[at + 1 :])
    if op.result is not None and at < len(op.steps):
        steps.round(op.result, last=True)
    passed = "".join(f", {name}" for name in parameters)
    declared = "".join(f", __global const {c_type}* restrict {name}" for name, c_type in parameters.items())
    c_type = C_TYPES[node.outputs[0].dtype]
    defines: dict[str, object] = {
        "T": c_type,
        "RESULT_ARGS": declared + steps.parameters,
        "STORE_SUM(o, s, z, m, n)": f"(dst[o] = ({c_type})(steps_1(value_1(s, n{passed}), o{steps.passed})))",
    }
    first = "quick_1" if scaling is not None and caps.kind == "GPU" else "value_1"
    defines["STORED(s, n, o)"] = f"({'float' if quick else c_type})(steps_1({first}(s, n{passed}), o{steps.passed}))"
    if vec > 1:
        real = f"steps_v(value_v(sums, n{passed}), o{steps.passed})"
        results = f"convert_{c_type}{vec}({f'as_int{vec}({real})' if low_bytes else real})"
        defines["STORE_SUMS(o, sums, n)"] = f"(((__global PACKED_T*)(dst + (o)))->v = {results})"
        if low_bytes:
            defines["RESULTS(o, sums, n)"] = results
    bias = Null() if counts is None or not counts.any() else Constant(counts)
    if quick:
        value = value.replace("? r : value_1(s, n PASSED)", "? r : NAN")
    source = steps.source + value.replace("PARAMETERS", declared).replace("PASSED", passed)
    return Result(source, defines, (*arguments, *steps.arguments), caps.exact_options), bias


_REAL = """static float value_1(const int s, const int n PARAMETERS) { return (float)s * factor[n]ADDED_1; }
static float8 value_v(const int8 s, const int n PARAMETERS) { return convert_float8(s) * LOAD(factor + n)ADDED_V; }
"""
_ROUNDED_1 = """static float value_1(const int s, const int n PARAMETERS) {
  return (float)rint(((REAL)s * unit[n]EXACT) / divisor[0]);
}
static float near_1(const int s, const float t, const int n PARAMETERS) {
  const float r = WHOLE;
  return fabs(fabs(t - r) - 0.5f) > 0.000244140625f ? r : value_1(s, n PASSED);
}
static float quick_1(const int s, const int n PARAMETERS) { return near_1(s, (float)s * factor[n]ADDED_1, n PASSED); }
static float8 value_v(const int8 s, const int n PARAMETERS) {
  const float8 t = convert_float8(s) * LOAD(factor + n)ADDED_V;
  return (float8)(NEARS);
}
"""
"""As `_ROUNDED` for GPUs: a branch for each element, and no vectors in memory."""
_ROUNDED = """static float value_1(const int s, const int n PARAMETERS) {
  return (float)rint(((REAL)s * unit[n]EXACT) / divisor[0]);
}
static float8 value_v(const int8 s, const int n PARAMETERS) {
  const float8 t = convert_float8(s) * LOAD(factor + n)ADDED_V;
  float8 r = WHOLE;
  // In float t is less than 2^-12 away from where it should be, up to 1024, beyond what can be stored.
  if (as_long(convert_char8(!(fabs(t - r) < 0.499755859375f)))) {
    const int8 sums = s;  // in memory only here
    float8 found;
    for (int i = 0; i < 8; ++i) ((float*)&found)[i] = value_1(((const int*)&sums)[i], n + i PASSED);
    r = found;
  }
  return r;
}
"""


def _value(
    factors: Scales, scaling: Scaling | None, adds: bool, caps: Capabilities, vec: int
) -> tuple[str, dict[str, str], list[Constant]]:
    """The functions that make numbers of sums: real ones, or whole ones in units of a quantization; their parameters by name."""
    real, wide = ("double", np.float64) if caps.fp64 else ("float", np.float32)
    divisor = 1.0 if scaling is None else stored_bounds(scaling)[0]
    with np.errstate(all="ignore"):
        arrays = {"factor": (factors.units / divisor).astype(np.float32)}
        if adds:
            arrays["added"] = (factors.bias / divisor).astype(np.float32)
    if scaling is not None:
        arrays |= {"unit": factors.units.astype(wide), "divisor": np.array([divisor], wide)}
        arrays |= {"bias": factors.bias.astype(wide)} if adds else {}
    text = _REAL if scaling is None else _ROUNDED_1 if caps.kind == "GPU" else _ROUNDED
    text = text if vec > 1 else text.partition("static float8")[0]
    nears = ", ".join(f"near_1(s.s{i}, t.s{i}, n + {i} PASSED)" for i in range(VECTOR))
    text = (
        text.replace("NEARS", nears)
        .replace("EXACT", " + bias[n]" if adds else "")
        .replace("ADDED_1", " + added[n]" if adds else "")
    )
    text = text.replace("ADDED_V", " + LOAD(added + n)" if adds else "")
    text = re.sub(r"LOAD\(([^)]*)\)", lambda m: f"({vector_at('float', VECTOR, m[1])})", text).replace("REAL", real)
    text = text.replace("WHOLE", WHOLE.format("t"))
    types = {
        name: real if array.dtype == wide and name in ("unit", "divisor", "bias") else "float" for name, array in arrays.items()
    }
    return text, types, [Constant(np.ascontiguousarray(array)) for array in arrays.values()]


class QuantizedSums(QuantizedKernel, Generic[S]):
    """The base of convolutions and products."""

    @abstractmethod
    def factors(self, node: TypedNode) -> S:
        """The factors. Raises `Refused`."""

    def vec(self, node: TypedNode) -> int:
        """The results that a vector has."""
        return VECTOR

    def parts(self, node: TypedNode) -> tuple[S, Result, Argument]:
        factors, vec = self.factors(node), self.vec(node)
        key = (vec, self.reads(node))
        return factors, *self.packed.once(self.name, node, key, lambda: result_of(factors, self.caps, vec))

    def reads(self, node: TypedNode) -> Hashable:
        """All of the sizes and layouts that the steps after the sums depend on: how they read their operands."""
        found, result = list[Hashable](), node.outputs[0]
        for step in self.op(node).steps[1:]:
            for index in step.inputs if isinstance(step, QuantizedStep) else ():
                found.append(reading_of(None if index is None or index < 0 else node.given(index), result))
        return tuple(found)


class QuantizedConv(QuantizedSums[Factors]):
    """Convolutions in one and two dimensions, channels innermost or plain, on CPUs; the base of those on GPUs."""

    name = "quantized_conv_rows"
    by_content = False
    max_spatial = 2
    sparse = False
    """Whether groups of few channels are accepted."""

    def applies(self, node: TypedNode) -> Refusal | None:
        return self.applies_to(node, Conv)

    def check(self, node: TypedNode) -> Refusal | None:
        rank = self.conv(node).geometry(node.given(0), node.given(1)).rank
        maps, channels = node.given(1).dims[:2]
        if not self.sparse and is_sparse(self.conv(node).group, channels, maps):
            return Refusal(Reason.SHAPE, SPARSE)
        return Refusal(Reason.SHAPE, f"{rank} spatial axes") if rank > self.max_spatial else QuantizedKernel.check(self, node)

    def factors(self, node: TypedNode) -> Factors:
        return Factors.of(self.packed, node, self.op(node), 0)

    def vec(self, node: TypedNode) -> int:
        return 1 if node.outputs[0].layout == PLAIN else VECTOR

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        extra = windows_configurations(node)
        return [found for config in extra if (found := _with_operands(node, config, self.operands(node))) is not None]

    def operands(self, node: TypedNode) -> range:
        """The inputs that steps after the sums read."""
        return range(3 if _has_bias(self.op(node)) else 2, len(node.inputs))

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        factors, result, bias = self.parts(node)
        conv = self.conv(node)
        maps, channels = node.given(1).dims[:2]
        sizes = spatial_defines(conv.geometry(node.given(0), node.given(1)))
        numbers = {"GROUPS": conv.group, "C": channels, "M": maps, **sizes}
        zero = Constant(self.packed.same(factors.zero))
        return windows_launches(self.caps, node, numbers, factors.weights, zero, bias, result)

    def conv(self, node: TypedNode) -> Conv:
        """The convolution."""
        main = self.op(node).main
        assert isinstance(main, Conv)
        return main


def _has_bias(op: Quantized) -> bool:
    step = op.steps[0]
    assert isinstance(step, QuantizedStep)
    return len(step.inputs) > 2 and step.inputs[2] is not None


def _with_operands(node: TypedNode, config: LayerConfig, operands: range) -> LayerConfig | None:
    """The configuration with what the steps read in the result's layout, or plain and along it; None where that cannot be."""
    inputs, dst = list(config.inputs), node.outputs[0]
    for index in operands:
        if node.given(index).dims == dst.dims:
            inputs[index] = config.outputs[0]
        elif not post_ops.lies_along(node.given(index), dst, config.outputs[0]):
            return None
    return dataclasses.replace(config, inputs=tuple(inputs))


class QuantizedMatMul(QuantizedSums[Factors]):
    """Products of matrices by a constant matrix: MatMul and Gemm."""

    name = "quantized_gemm_rows"
    by_content = False

    def applies(self, node: TypedNode) -> Refusal | None:
        return self.applies_to(node, Gemm if isinstance(self.op(node).main, Gemm) else MatMul)

    def factors(self, node: TypedNode) -> Factors:
        op, a, b = self.op(node), node.given(0), node.given(1)
        if a.rank < 2 or b.rank != 2:
            raise Refused(f"{a} by {b}; accepted: matrices by one matrix")
        if not isinstance(op.main, Gemm):
            return Factors.of(self.packed, node, op, 1)
        if op.main.transA:
            raise Refused("transA 1; accepted: 0")
        return Factors.of(self.packed, node, op, 0 if op.main.transB else 1, op.main.alpha, op.main.beta)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        factors, result, bias = self.parts(node)
        m, n, k = factors.product
        if 0 in (m, n):
            return ()
        wei, packing = packed(factors.weights, (n, k, 1, 1), self.caps)
        sums = Sums.of_product(m, n, k, 1)
        defines = row_defines(C_TYPES[node.given(0).dtype], packing, has_bias=not isinstance(bias, Null))
        zero = Constant(self.packed.same(factors.zero))
        values = (Read(node.node.inputs[0]), wei, zero, bias, Write(node.node.outputs[0]))
        return (sums.launch(self.caps.compute_units, defines, result, *values),)


# --- elements --------------------------------------------------------------------------------------------------------


class QuantizedElementwise(QuantizedKernel):
    """Quantized operators that are computed element by element, in any layout: quantized_elementwise.cl."""

    name = "quantized_elementwise"
    by_content = False
    elementwise = True

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return elementwise_configurations(node)

    def parts(self, node: TypedNode) -> tuple[str, str, str, tuple[Argument, ...]]:
        """The parameters of the steps, their names, the source and the arguments, for these sizes. Raises `Refused`."""
        sizes, result = RuntimeSizes("step_n"), node.outputs[0]
        accesses = {i: elementwise_access(t, result, 0, sizes, i) for i, t in enumerate(node.inputs) if t is not None}
        types = tuple([t and (t.dtype, t.rank, t.dims == result.dims) for t in (*node.inputs, result)])
        key = types, tuple(accesses.values()), sizes.parameters
        steps = partial(self._parts, node, accesses, sizes)
        parameters, passed, text, places = self.packed.once(self.name, node, key, steps, by_content=self.caps.kind == "GPU")
        return parameters, passed, text, (*places, *sizes.arguments)

    def _parts(
        self, node: TypedNode, accesses: Mapping[int, Access | None], sizes: RuntimeSizes
    ) -> tuple[str, str, str, tuple[Argument, ...]]:
        steps = self._steps(node, accesses, sizes)
        return steps.parameters, steps.passed, steps.source, steps.places

    def _steps(self, node: TypedNode, accesses: Mapping[int, Access | None], sizes: RuntimeSizes) -> Steps:
        """The steps, the first of which makes a value of the inputs. Raises `Refused`."""
        op, result = self.op(node), node.outputs[0]
        first, is_gpu = op.steps[0], self.caps.kind == "GPU"
        steps = Steps(node, op, VECTOR, run_axes=0, branches=is_gpu, low_bytes=not is_gpu, sizes=sizes, accesses=accesses)
        assert isinstance(first, QuantizedStep)
        types = [None if i is None else node.given(i).with_dtype(DType.FLOAT32) for i in first.inputs]
        names = ["" if i is None else str(i) for i in first.inputs]
        for at, tensor in enumerate(types):
            chain = None if tensor is None or tensor.dims != result.dims else first.op.post_ops(types, names, at)
            if chain is not None:
                steps.start(int(names[at]))
                steps.chain(chain, first.op.key)
                break
        else:
            raise Refused(f"{first.op.key} is not computed element by element")
        steps.add(*op.steps[1:])
        if op.result is not None:
            steps.round(op.result, last=True)
        return steps

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        (parameters, passed, text, given), size = self.parts(node), node.outputs[0].size
        c_type = C_TYPES[node.outputs[0].dtype]
        run, values = 512 if self.caps.kind == "CPU" else VECTOR, f"steps_v((float{VECTOR})(0), o{passed})"
        if self.caps.kind != "GPU" and self.op(node).result is not None:
            values = f"as_int{VECTOR}({values})"
        defines: dict[str, object] = {
            "T": c_type,
            "RUN": run,
            "RESULT_ARGS": parameters,
            "VALUE(o)": f"(({c_type})(steps_1(0.0f, o{passed})))",
            "VALUES(o)": f"(convert_{c_type}{VECTOR}({values}))",
        }
        source = assemble("quantized_elementwise.cl", defines, text)
        work, local = spread(ceil_div(size, run), self.caps, 1 if self.caps.kind == "CPU" else 128)
        arguments = (Write(node.node.outputs[0]), *ints(size), *given)
        return (Launch("quantized_elementwise.cl", source, self.name, arguments, work, local, self.caps.exact_options),)
