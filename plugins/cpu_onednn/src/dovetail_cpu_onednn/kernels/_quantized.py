"""Quantized operators by int8 primitives: scales and offsets folded into weights' scales and bias, the rest into post-ops.

Memory holds u8 and s8; sums are s32; later steps are float32 with one rounding where the graph quantizes. A convolution or
product that is quantized at once computes as the standard and onnxruntime do: the bias is added to the sum in whole numbers,
(x_scale * w_scale) / y_scale multiplies that in float32, it is rounded, and the zero point comes last. That order costs up to
4 % against folding all into scale and bias, and makes results equal but for sums of more than 24 bits.
"""

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import PLAIN, AbstractOperator, DType, LayerConfig, Layout, Reason, TensorType, TypedNode
from dovetail.lru import LruCache
from dovetail_cpu_onednn.binding import INFERENCE, TAG_ANY, Alg, Arg, MemoryDesc
from dovetail_cpu_onednn.descriptors import describe, number_of, plain, undecided
from dovetail_cpu_onednn.kernel import (
    AnyLayoutKernel,
    Argument,
    NodePlan,
    PrimitiveKernel,
    Refused,
    Stage,
    is_constant,
    value_argument,
)
from dovetail_cpu_onednn.kernels._conv import in_faster_layout, padding, preferred, weights_of
from dovetail_cpu_onednn.kernels._matmul import collapse
from dovetail_cpu_onednn.kernels._pool import whole
from dovetail_cpu_onednn.kernels._quantized_chain import Epilogue, gives_halves, single_scale
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.post_ops import BINARY, ELTWISE, Appended, is_one_element_a_channel, require_no_columns
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.gemm import Gemm
from dovetail_ops_onnx.global_average_pool import GlobalAveragePool
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep

__all__ = ["INT8", "SHIFT", "AnyLayoutQuantizedKernel", "QuantizedKernel", "require_int8", "weights_argument"]

INT8 = frozenset({DType.INT8, DType.UINT8})
Array = NDArray[Any]
Builder = Callable[[TypedNode, Quantized, bool], NodePlan]
SHIFT = 128
"""Between u8 weights and the s8 that the primitives take."""


def require_int8() -> None:
    """Raise `Refused` on CPUs whose sums of 8-bit products are not exact."""
    if not library().has_int8:
        raise Refused(Reason.CAPABILITY, "this CPU has no instructions (VNNI) for exact sums of 8-bit products")


def weights_argument(node: TypedNode, desc: MemoryDesc, wanted: MemoryDesc) -> Argument:
    """The constant weights, which have layout `desc`, as a primitive takes them."""
    return Argument(Arg.WEIGHTS, "input", 1, desc, wanted, repack=_shifted if node.given(1).dtype is DType.UINT8 else None)


def _shifted(weights: Array) -> Array:
    """In int8, less `SHIFT`."""
    return (weights ^ np.uint8(SHIFT)).view(np.int8)


class QuantizedKernel(PrimitiveKernel):
    """Convolutions and matrix products of quantized values, with what follows them up to the next quantization."""

    name = "int8"
    dtypes = INT8 | {DType.FLOAT32}

    @property
    def builders(self) -> Mapping[type[AbstractOperator], Builder]:
        """Main operator -> the function that makes the plan."""
        return {Conv: _convolution, Gemm: _gemm, MatMul: _mat_mul}

    def chain(self, node: TypedNode) -> tuple[str, ...]:
        assert isinstance(node.op, Quantized)
        return node.op.chain

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        assert isinstance(node.op, Quantized)
        if node.post_ops:
            raise Refused(Reason.POST_OP, "what is stored quantized takes none")
        require_int8()
        build = self.builders.get(type(node.op.main))
        if build is None:
            raise Refused(Reason.OPERATOR, f"no int8 primitive for {node.op.main.key}")
        return build(node, node.op, free)

    def divides(self, node: TypedNode) -> bool:
        return node.outputs[0].dtype in INT8  # as real numbers, results may differ in their last bits


class AnyLayoutQuantizedKernel(QuantizedKernel, AnyLayoutKernel):
    """Sums, products of elements and means, in the layout that the data has."""

    @property
    def builders(self) -> Mapping[type[AbstractOperator], Builder]:
        """Main operator -> the function that makes the plan."""
        return {Add: _sum, GlobalAveragePool: _mean, Mul: _scaled}

    def _config(self, node: TypedNode, layout: Layout) -> LayerConfig:
        rank = node.outputs[0].rank
        inputs = tuple(layout if t is not None and t.rank == rank else PLAIN for t in node.inputs)
        return LayerConfig(inputs, (layout,), (PLAIN,) * len(node.operands))


# --- weights and bias ----------------------------------------------------------------------------------------------------


def _source(node: TypedNode, op: Quantized, index: int) -> tuple[float, int]:
    scaling = op.scalings[index] if index < len(op.scalings) else None
    if scaling is None or node.given(index).dtype not in INT8:
        raise Refused(Reason.DTYPE, f"input {index} is not quantized to 8 bits")
    scale, zero = single_scale(scaling)
    return scale, int(zero)


def _weight_scales(node: TypedNode, op: Quantized, axis: int) -> Array:
    """The scale of the constant weights: one, or one for each place along `axis`."""
    scaling = op.scalings[1]
    if scaling is None or not is_constant(node, 1):
        raise Refused(Reason.DTYPE, "weights that are not constant and quantized")
    tensor = node.given(1)
    if (scaling.zero_point != (SHIFT if tensor.dtype is DType.UINT8 else 0)).any():
        raise Refused(Reason.ATTRIBUTE, "weights with a zero point")
    if scaling.scale.size > 1 and scaling.axis % tensor.rank != axis:
        raise Refused(Reason.ATTRIBUTE, f"scales of the weights along axis {scaling.axis}; accepted: {axis}")
    return scaling.scale.reshape(-1)


def _bias(node: TypedNode, op: Quantized, index: int, size: int) -> Array:
    """The real bias, zeros where there is none."""
    tensor = node.inputs[index] if op.steps and index < _own_inputs(op) else None
    if tensor is None:
        return np.zeros(size)
    if tensor.value is None or op.scalings[index] is not None or tensor.size != size or tensor.dims[-1:] not in ((), (size,)):
        raise Refused(Reason.SHAPE, f"bias {tensor}; accepted: a constant row of {size} real numbers")
    return np.asarray(tensor.value, np.float64).reshape(-1)


def _own_inputs(op: Quantized) -> int:
    """How many inputs the first step has; they come first."""
    step = op.steps[0]
    assert isinstance(step, QuantizedStep)
    return sum(index is not None for index in step.inputs)


@dataclass(frozen=True)
class _Parameters:
    """The inputs of a primitive besides data: masks for its attributes, steps before its chain, and the numbers themselves."""

    masks: tuple[tuple[str, int, int], ...]
    before: tuple[Appended, ...]
    arguments: tuple[Argument, ...]
    bias: Argument | None

    @staticmethod
    def of(chain: Epilogue, units: Array, bias: Array, zero: int, shapes: "_Shapes") -> "_Parameters":
        """For sums that count in `units` over a source with zero point `zero`, plus a real bias, before the chain.

        Equal ones are one object: they do not depend on sizes of the data, and computing them takes longer than all else here.
        """
        vector = None if chain.vector is None else chain.vector.tobytes()
        question = (chain.head, vector, units.dtype, units.tobytes(), bias.tobytes(), zero, shapes)
        found = _PARAMETERS.get(question)
        if found is None:
            found = _Parameters._of(chain, units, bias, zero, shapes)
            _PARAMETERS.put(question, found)
        return found

    @staticmethod
    def _of(chain: Epilogue, units: Array, bias: Array, zero: int, shapes: "_Shapes") -> "_Parameters":
        masks: list[tuple[str, int, int]] = []
        arguments: list[Argument] = []
        before: tuple[Appended, ...] = ()
        scales: Array | None = units.astype(np.float64) * chain.head[0]
        added = bias * chain.head[0] + chain.head[1]
        if chain.vector is not None:
            added = _whole(bias, units)
            scales = None if added.any() else chain.vector
            if scales is None:
                vector = chain.vector.reshape(shapes.vector) if chain.vector.size > 1 else np.full(shapes.vector, chain.vector)
                arguments.append(value_argument(Arg.post_op(0, Arg.SRC_1), vector))
                before = (("binary", (BINARY["mul"], arguments[0].desc)),)
        if scales is not None:
            masks.append(("scales", int(Arg.WEIGHTS), shapes.mask if scales.size > 1 else 0))
            arguments.append(value_argument(Arg.SCALES | Arg.WEIGHTS, scales.astype(np.float32)))
        if zero:
            masks.append(("zero_points", int(Arg.SRC), 0))
            arguments.append(value_argument(Arg.ZERO_POINTS | Arg.SRC, np.array([zero], np.int32)))
        _check_normal(units, added, scales if chain.vector is None else chain.vector)
        size = math.prod(shapes.bias)
        row = value_argument(Arg.BIAS, np.broadcast_to(added, size).astype(np.float32).reshape(shapes.bias))
        return _Parameters(tuple(masks), before, tuple(arguments), row if added.any() else None)

    @property
    def row(self) -> MemoryDesc | None:
        """The descriptor of the bias."""
        return None if self.bias is None else self.bias.desc

    @property
    def all(self) -> list[Argument]:
        """Scales, zero points, bias."""
        return [*self.arguments, *([] if self.bias is None else [self.bias])]


_PARAMETERS: LruCache[Hashable, _Parameters] = LruCache(256)


def _check_normal(units: Array, added: Array, factors: Array | None) -> None:
    """Raise `Refused` where float32 does not hold what is added to sums, or has fewer bits for their units and factors."""
    limits = np.finfo(np.float32)
    numbers = np.abs(np.concatenate([np.ravel(units), np.ravel(0.0 if factors is None else factors)]).astype(np.float64))
    if (units == 0).any() or ((numbers < limits.tiny) & (numbers > 0)).any() or (np.abs(added) > limits.max).any():
        raise Refused(Reason.ATTRIBUTE, "scales whose products or quotients are beyond float32")


@dataclass(frozen=True)
class _Shapes:
    """How a primitive takes a number for each output channel: in its bias, in a post-op, and the mask of its scales."""

    bias: tuple[int, ...]
    vector: tuple[int, ...]
    mask: int


def _whole(bias: Array, units: Array) -> Array:
    """The bias in units of the sums; a bias that was stored in int32 becomes that again, which float32 has blurred."""
    with np.errstate(all="ignore"):  # units of 0 are refused afterwards
        counts = bias / units.astype(np.float64)
        whole = np.rint(counts)
        return np.where(np.abs(counts - whole) <= 1e-3 + 2e-7 * np.abs(whole), whole, counts)


# --- primitives ----------------------------------------------------------------------------------------------------------


def _convolution(node: TypedNode, op: Quantized, free: bool) -> NodePlan:
    return in_faster_layout(node, free, lambda node, free: _convolution_in(node, op, free))


def _convolution_in(node: TypedNode, op: Quantized, free: bool) -> NodePlan:
    conv, src_type, dst_type = op.main, node.given(0), node.outputs[0]
    assert isinstance(conv, Conv)
    scale, zero = _source(node, op, 0)
    dims = node.given(1).dims
    units, maps = np.float32(scale) * _weight_scales(node, op, 0), dims[0]
    chain = Epilogue.of(node, op, free, units, sums=True)
    shapes = _Shapes((maps,), (1, maps, *(1,) * (len(dims) - 2)), 3 if conv.group > 1 else 1)
    parameters = _Parameters.of(chain, units, _bias(node, op, 2, maps), zero, shapes)
    lib, g = library(), conv.geometry(src_type, node.given(1))
    wei = weights_of(TensorType(DType.INT8, dims), conv.group, False)
    src, dst = (undecided(t) if free else describe(t) for t in (src_type, dst_type))
    wanted = lib.tagged(wei.dims, TAG_ANY, wei.dtype)
    gaps = tuple(d - 1 for d in g.dilations)
    sizes = (g.strides, gaps, g.pads_begin, padding(g))
    attr = lib.attr([*parameters.before, *chain.appended], [*parameters.masks, *chain.masks])
    args = (INFERENCE, Alg.CONVOLUTION_DIRECT, src, wanted, parameters.row, dst, *sizes)
    pd = lib.describe("convolution_forward", *args, attr=attr, instead=preferred(conv, src_type, dst_type))
    arguments = [
        Argument(Arg.SRC, "input", 0, lib.taken(pd, Arg.SRC, src), flexible=True),
        weights_argument(node, wei, lib.arg_md(pd, Arg.WEIGHTS, wei.dims)),
        Argument(Arg.DST, "output", 0, lib.taken(pd, Arg.DST, dst), flexible=True),
    ]
    return NodePlan((Stage(pd, (*arguments, *parameters.all, *chain.arguments(pd, len(parameters.before)))),))


def _product(
    node: TypedNode, op: Quantized, wei: MemoryDesc, axis: int, shapes: tuple[tuple[int, ...], ...], unit: float, added: Array
) -> NodePlan:
    """dst = src @ wei in the dimensions `shapes`; `unit` multiplies the product, `added` is the real row behind it."""
    lib, (rows, _, result) = library(), shapes
    scale, zero = _source(node, op, 0)
    units = np.float32(unit) * (np.float32(scale) * _weight_scales(node, op, axis))
    chain = Epilogue.of(node, op, False, units, sums=True, dims=result)
    row = (*(1,) * (len(result) - 1), result[-1])
    parameters = _Parameters.of(chain, units, added, zero, _Shapes(row, row, 1 << (len(result) - 1)))
    src, dst = plain(rows, number_of(node.given(0).dtype)), plain(result, number_of(node.outputs[0].dtype))
    wanted = lib.tagged(wei.dims, TAG_ANY, wei.dtype)
    attr = lib.attr([*parameters.before, *chain.appended], [*parameters.masks, *chain.masks])
    pd = lib.describe("matmul", src, wanted, parameters.row, dst, attr=attr)
    arguments = [
        Argument(Arg.SRC, "input", 0, src),
        weights_argument(node, wei, lib.arg_md(pd, Arg.WEIGHTS, wei.dims)),
        Argument(Arg.DST, "output", 0, dst),
    ]
    reads = [replace(argument, flexible=False) for argument in chain.arguments(pd, len(parameters.before))]
    return NodePlan((Stage(pd, (*arguments, *parameters.all, *reads)),))


def _mat_mul(node: TypedNode, op: Quantized, free: bool) -> NodePlan:
    a, b = node.given(0), node.given(1)
    shapes = collapse(a.dims, b.dims)
    if a.rank < 2 or b.rank != 2:
        raise Refused(Reason.SHAPE, f"{a} by {b}; accepted: matrices by one matrix")
    return _product(node, op, plain(b.dims, number_of(DType.INT8)), 1, shapes, 1.0, np.zeros(1))


def _gemm(node: TypedNode, op: Quantized, free: bool) -> NodePlan:
    gemm = op.main
    assert isinstance(gemm, Gemm)
    m, n, k = gemm.sizes(node.given(0), node.given(1))
    if gemm.transA:
        raise Refused(Reason.ATTRIBUTE, "transA 1; accepted: 0")
    wei = library().strided((k, n), (1, k) if gemm.transB else (n, 1), number_of(DType.INT8))
    bias = _bias(node, op, 2, n) * gemm.beta
    return _product(node, op, wei, 0 if gemm.transB else 1, ((m, k), (k, n), (m, n)), gemm.alpha, bias)


def _sum(node: TypedNode, op: Quantized, free: bool) -> NodePlan:
    """Two quantized values of one shape; their zero points become one offset behind the sum."""
    if node.given(0).dims != node.given(1).dims or _own_inputs(op) != 2:
        raise Refused(Reason.SHAPE, "summands of different shapes")
    (s0, z0), (s1, z1) = (_source(node, op, index) for index in (0, 1))
    lib, chain = library(), Epilogue.of(node, op, False, np.array([s0, s1]), sums=False)
    result = node.outputs[0]
    if is_one_element_a_channel(result.dims) and any(math.prod(desc.dims) not in (1, result.size) for *_, desc in chain.reads):
        raise Refused(Reason.POST_OP, f"oneDNN reads operands of {result} wrongly; accepted: one number, or {list(result.dims)}")
    factor, offset = chain.head
    shifted = offset - factor * (s0 * z0 + s1 * z1)
    before: list[Appended] = [("eltwise", (ELTWISE["linear"], 1.0, shifted))] if shifted else []
    descs = [describe(t) for t in (node.given(0), node.given(1), node.outputs[0])]
    require_no_columns(descs[2], (desc for *_, desc in chain.reads))
    masks = [("scales", int(arg), 0) for arg in (Arg.SRC, Arg.SRC_1)]
    pd = lib.describe("binary", BINARY["add"], *descs, attr=lib.attr([*before, *chain.appended], masks))
    places = ((Arg.SRC, "input", 0), (Arg.SRC_1, "input", 1), (Arg.DST, "output", 0))
    arguments = [Argument(*place, desc, flexible=True) for place, desc in zip(places, descs, strict=True)]
    scales = [value_argument(Arg.SCALES | arg, np.array([s * factor], np.float32)) for arg, s in ((Arg.SRC, s0), (Arg.SRC_1, s1))]
    return NodePlan((Stage(pd, (*arguments, *scales, *chain.arguments(pd, len(before)))),))


def _scaled(node: TypedNode, op: Quantized, free: bool) -> NodePlan:
    """A quantized value times another one, of its shape or one number for each channel: stored * factor + offset.

    The factor is the other one in float32 with all scales, the offset zero point - factor * zero point. oneDNN's kernel is
    called for each pixel, and an eltwise step would double its time.
    """
    result = op.result
    if result is None or len(op.steps) > 1 or _own_inputs(op) != 2 or node.outputs[0].layout.block:
        raise Refused(Reason.SHAPE, "one factor twice, a chain, a float32 result, or channels in blocks")
    sources = [_source(node, op, index) for index in (0, 1)]
    dims = node.outputs[0].dims
    at = min((index for index in (0, 1) if node.given(index).dims == dims), key=lambda index: sources[index][1] != 0, default=-1)
    if at < 0:
        raise Refused(Reason.SHAPE, "two factors that broadcast")
    (scale, zero), (other_scale, other_zero), (unit, shift) = sources[at], sources[1 - at], single_scale(result)
    factor = scale * other_scale / unit
    if shift % 2 and gives_halves(np.array(factor)):
        raise Refused(Reason.ATTRIBUTE, "scales that give exact halves before an odd zero point")
    other = _by_channel(node.given(1 - at), node.outputs[0], bool(zero))
    lib, (src, dst) = library(), (describe(t) for t in (node.given(at), node.outputs[0]))
    if other.dims == dims:  # element by element: with channels last, oneDNN takes float32 for numbers of src's size
        src, dst = (plain(other.memory_dims, desc.dtype) for desc in (src, dst))
    read, real = (plain(other.memory_dims, number_of(dtype)) for dtype in (other.dtype, DType.FLOAT32))
    numbers = [value_argument(Arg.SCALES | Arg.SRC, np.array([factor], np.float32))]
    masks = [("scales", int(Arg.SRC), 0)]
    if other_zero:
        numbers.append(value_argument(Arg.ZERO_POINTS | Arg.SRC, np.array([other_zero], np.int32)))
        masks.append(("zero_points", int(Arg.SRC), 0))
    factors, offsets = (Argument(Arg.DST, "scratch", index, real) for index in (0, 1))
    stages = [
        Stage(
            lib.describe_reorder(read, real, lib.attr((), masks)), (Argument(Arg.SRC, "input", 1 - at, read), factors, *numbers)
        )
    ]
    added = value_argument(Arg.DST, np.full((1,) * len(dims), shift, np.float32))
    if zero:
        pd = lib.describe("eltwise_forward", INFERENCE, ELTWISE["linear"], real, real, -zero, shift)
        stages.append(Stage(pd, (replace(factors, arg=Arg.SRC), offsets)))
        added = offsets
    steps: list[Appended] = [("binary", (BINARY["add"], added.desc))] if zero or shift else []
    pd = lib.describe("binary", BINARY["mul"], src, real, dst, attr=lib.attr(steps))
    arguments = [Argument(Arg.SRC, "input", at, src), replace(factors, arg=Arg.SRC_1), Argument(Arg.DST, "output", 0, dst)]
    arguments += [replace(added, arg=Arg.post_op(0, Arg.SRC_1))] if steps else []
    return NodePlan((*stages, Stage(pd, tuple(arguments))), scratch=(4 * other.size,) * (2 if zero else 1))


def _by_channel(other: TensorType, result: TensorType, shifted: bool) -> TensorType:
    """The second factor in the rank of the result. Raises `Refused` for others than `_scaled` takes."""
    if other.dims == result.dims and not shifted:
        return other
    own = (1,) * (result.rank - other.rank) + other.dims
    if any(size > 1 for size in own[2:]):
        raise Refused(Reason.SHAPE, f"{other} for a result {result}; accepted: one number for each channel")
    return TensorType(other.dtype, own)


def _mean(node: TypedNode, op: Quantized, free: bool) -> NodePlan:
    """The mean of each channel."""
    if op.result is None or node.outputs[0].dtype is not node.given(0).dtype:
        raise Refused(Reason.DTYPE, "a mean of another type than its elements")
    scale, zero = _source(node, op, 0)
    lib, g = library(), whole(node)
    chain = Epilogue.of(node, op, False, np.array(scale / math.prod(g.kernel)), sums=False)
    chain.head = (chain.head[0] * scale, chain.head[1] - chain.head[0] * scale * zero)
    src, dst = describe(node.given(0)), describe(node.outputs[0])
    gaps = tuple(d - 1 for d in g.dilations)
    sizes = (g.strides, g.kernel, gaps, g.pads_begin, padding(g))
    args = (INFERENCE, Alg.POOLING_AVG_EXCLUDE_PADDING, src, dst, *sizes)
    pd = lib.describe("pooling_forward", *args, attr=lib.attr(chain.whole))
    arguments = [Argument(Arg.SRC, "input", 0, src, flexible=True), Argument(Arg.DST, "output", 0, dst, flexible=True)]
    return NodePlan((Stage(pd, (*arguments, *chain.arguments(pd, len(chain.whole) - len(chain.appended)))),))
