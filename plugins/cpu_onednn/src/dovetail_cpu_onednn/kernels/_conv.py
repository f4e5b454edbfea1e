"""Convolution and deconvolution: weights brought once into the layout that the primitive chooses."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import gcd
from typing import TYPE_CHECKING, Any, cast

from dovetail.device import BYXF, PLAIN, DType, LayerConfig, Layout, Reason, TensorType, TypedNode
from dovetail_cpu_onednn.binding import FIRST, INFERENCE, TAG_ANY, Arg, Instead, MemoryDesc, Unimplemented
from dovetail_cpu_onednn.descriptors import BLOCKED, blocked, describe, in_rank, number_of, plain_strides, undecided
from dovetail_cpu_onednn.kernel import LOW, Argument, NodePlan, PrimitiveKernel, Refused, is_constant, relaid, when_asked
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.node_plans import cached_plan
from dovetail_cpu_onednn.post_ops import attach
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.spatial import ConvGeometry

if TYPE_CHECKING:
    from dovetail_ops_onnx.conv_transpose import ConvTranspose

__all__ = ["DEPTHWISE", "LONG", "SEQUENCE", "ConvKernel", "activation", "in_faster_layout", "padding", "preferred", "weights_of"]

FEW_CHANNELS = 4
"""Up to so many input channels oneDNN has fast convolutions from plain data."""


def activation(node: TypedNode, place: str, free: bool) -> MemoryDesc:
    """Input 0 or output 0: `any` while layouts are chosen, else its layout."""
    tensor = node.given(0) if place == "input" else node.outputs[0]
    if free and isinstance(node.op, Conv) and preferred(node.op, node.given(0), node.outputs[0]) is SEQUENCE:
        return describe(tensor.with_layout(BYXF))  # as brgconv has it; the other one would fill few channels up to blocks
    return undecided(tensor) if free else describe(tensor)


def padding(g: ConvGeometry) -> tuple[int, ...]:
    """Elements after the end that the last window reads; less than 0 where it stops before the end."""
    spans = zip(g.output, g.strides, g.extent, g.pads_begin, g.input, strict=True)
    return tuple((o - 1) * s + e - begin - size for o, s, e, begin, size in spans)


_TAKEN: set[Layout] = set()
"""Layouts that a convolution of this process took."""


DEPTHWISE = Instead("brdgmm_dw:", "jit_dw:")
"""oneDNN's first choice, and its second, which is faster for 22 of 23 sizes, up to 1.5 times (Zen 4, with AVX-512 and AVX2)."""

SEQUENCE = Instead("brgconv:", "jit:avx", is_spread=True)
"""The same for sequences: as fast, and made in 1 ms. brgconv's code grows with the columns: 17 ms for 24,000."""

_INT8_SEQUENCE = Instead("brgconv:", "jit_int8:avx", is_spread=True)
"""The same for 8-bit numbers: 52 ms for 24,000 columns."""

LONG = 256
"""Sequences of at least so many columns are computed by these."""


def preferred(op: Conv, x: TensorType, result: TensorType) -> Instead:
    """The implementation to take in place of oneDNN's first choice, for these data and result."""
    if op.group == x.dims[1] > 1 and x.dtype not in (DType.INT8, DType.UINT8):
        return DEPTHWISE
    if op.group > 1 or x.rank != 3 or result.dims[2] < LONG:
        return FIRST
    if x.dtype in (DType.INT8, DType.UINT8):
        return _INT8_SEQUENCE
    return SEQUENCE if x.dtype is result.dtype is DType.FLOAT32 else FIRST


def in_faster_layout(node: TypedNode, free: bool, make: Callable[[TypedNode, bool], NodePlan]) -> NodePlan:
    """The plan that `make` gives for the node; where that is slow, the one for the same bytes as channels last, if it is not."""
    found = make(node, free)
    if free or not found.is_slow or (other := _channels_last(node)) == node:
        return found
    try:
        again = make(other, False)
    except (Refused, Unimplemented):
        return found
    # Windows copied into a matrix beat the reference. 8 x 500 numbers to 100 channels, windows of 11, 8 apart: 180 -> 0.4 ms.
    return again if not again.is_slow or ("ref" in found.name and "ref" not in again.name) else found


def _channels_last(node: TypedNode) -> TypedNode:
    """The node with BYXF in place of plain where both are the same bytes: one channel, or one element in each.

    oneDNN knows an implementation's layout by its strides, which differ even along axes of one element.
    """

    def called(tensor: TensorType) -> TensorType:
        same = tensor.layout == PLAIN and 3 <= tensor.rank <= 5 and (tensor.dims[1] == 1 or set(tensor.dims[2:]) == {1})
        return tensor.with_layout(BYXF) if same else tensor

    x, result, *others = (node.given(0), node.outputs[0], *node.operands)
    operands = tuple(called(t) if t.dims == result.dims else t for t in others)
    return replace(node, inputs=(called(x), *node.inputs[1:]), outputs=(called(result),), operands=operands)


def as_images(node: TypedNode) -> TypedNode:
    """The node as oneDNN computes it fastest: of the same bytes in any layout, over other axes."""
    return _widened(node) if node.given(0).rank == 3 else _lying(node)


def _widened(node: TypedNode) -> TypedNode:
    """A depthwise convolution over one axis as one over images of one row, for which alone oneDNN has fast implementations.

    256 channels of 500 numbers, windows of 31, channels last: 1422 -> 92 us (one thread).
    """
    op, x, wei, result = node.op, node.given(0), node.given(1), node.outputs[0]
    if not isinstance(op, Conv) or not op.group == x.dims[1] > 1:
        return node
    g = op.geometry(x, wei)
    sizes: dict[str, Any] = {name: (1, *getattr(g, field)) for name, field in _SIZES.items()}
    op = replace(op, pads=(0, *g.pads_begin, 0, *g.pads_end), auto_pad="NOTSET", **sizes)
    operands = tuple(_with_row(t) for t in node.operands)
    inputs = (_with_row(x), _with_row(wei), *node.inputs[2:])
    return TypedNode(replace(node.node, op=op), inputs, (_with_row(result),), operands)


def _with_row(tensor: TensorType) -> TensorType:
    """The type with an axis of size 1 before the last one."""
    if not tensor.rank:
        return tensor
    dims = (*tensor.dims[:-1], 1, tensor.dims[-1])
    value = None if tensor.value is None else tensor.value.reshape(dims)
    return TensorType(tensor.dtype, dims, value, in_rank(tensor.layout, len(dims)))


def _lying(node: TypedNode) -> TypedNode:
    """The node with its two spatial axes exchanged where the last has size 1 and no padding: the same bytes in any layout.

    Converters make convolutions over time of images that are one pixel wide. oneDNN cuts the last axis into blocks: a kernel
    of 5 x 1 over 512 x 1 pixels of 256 channels takes 12.4 ms, one of 1 x 5 over 1 x 512 takes 4.1 (two threads).
    """
    op, x, wei, result = node.op, node.given(0), node.given(1), node.outputs[0]
    if not isinstance(op, Conv) or x.rank != 4 or x.dims[2] == 1 or not x.dims[3] == wei.dims[3] == result.dims[3] == 1:
        return node
    g = op.geometry(x, wei)
    sizes = {name: getattr(g, field)[::-1] for name, field in _SIZES.items()}
    turned = replace(op, pads=(*g.pads_begin[::-1], *g.pads_end[::-1]), auto_pad="NOTSET", **sizes)
    operands = tuple(_exchanged(t) for t in node.operands)
    inputs = (_exchanged(x), _exchanged(wei), *node.inputs[2:])
    return TypedNode(replace(node.node, op=turned), inputs, (_exchanged(result),), operands)


_SIZES = {"kernel_shape": "kernel", "strides": "strides", "dilations": "dilations"}


def _exchanged(tensor: TensorType) -> TensorType:
    """The type with its last two axes exchanged. Of lower rank than 2 are single numbers, because the width is 1."""
    if tensor.rank < 2:
        return tensor
    *first, height, width = tensor.dims
    dims = (*first, width, height)
    value = None if tensor.value is None else tensor.value.reshape(dims)
    return TensorType(tensor.dtype, dims, value, tensor.layout)


class ConvKernel(PrimitiveKernel):
    """Base: of the primitive its name and algorithm, and what it calls padding_r."""

    dtypes = LOW
    primitive = ""
    algorithm = 0

    def padding_end(self, g: ConvGeometry) -> Sequence[int]:
        """The padding at the end, oneDNN's padding_r."""
        return padding(g)

    @cached_plan
    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        def make(node: TypedNode, free: bool) -> NodePlan:
            src, dst = (activation(node, place, free) for place in ("input", "output"))
            return self._plan(node, src, dst, free, shared)

        return self.instead(node, free) or in_faster_layout(as_images(node), free, make)

    def instead(self, node: TypedNode, free: bool) -> NodePlan | None:
        """The plan that takes the place of the primitive's, if there is a faster one."""
        return None

    def _checked(self, node: TypedNode) -> NodePlan:
        found = super()._checked(node)
        if node.post_ops and "gemm" in found.stages[-1].desc.implementation:
            # 256 channels of 1,000 columns: 0.6 ms, with a relu 3.2, with a prelu 24.
            raise Refused(Reason.POST_OP, f"{found.name} computes the chain number by number")
        return found

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        found = [*super().configurations(node)]
        if node.given(0).dims[1] <= FEW_CHANNELS:
            # A model's first layer: it may take the input as it comes, without a reorder.
            answer = self._attempt(node, self._from_plain)
            found += [answer] if isinstance(answer, LayerConfig) and answer not in found else []
        rank, channels = node.given(0).rank, gcd(node.given(0).dims[1], node.outputs[0].dims[1])
        for layout in (BYXF, *(blocked(rank, block) for block in BLOCKED[:2])):
            taken = any({c.inputs[0], c.outputs[0]} == {layout} for c in found)
            ask = partial(self._attempt, node, partial(self._throughout, layout))
            many = node.given(0).dims[1] > FEW_CHANNELS  # of a model's first layer few blocks are left
            # Where one convolution took these blocks, which depends on the CPU, it is enough to ask others later.
            if not taken and (layout == BYXF or (many and layout in _TAKEN) or isinstance(ask(), LayerConfig)):
                found.append(when_asked(node, self._config(node, layout), ask))
                taken = True
                if many:
                    _TAKEN.add(layout)
            if taken and layout.block and channels % layout.block == 0:
                break  # whole blocks: neighbours that take smaller ones take these
        return found

    def _config(self, node: TypedNode, layout: Layout) -> LayerConfig:
        src, dst = node.given(0), node.outputs[0]
        operands = tuple(layout if operand.dims == dst.dims else PLAIN for operand in node.operands)
        return LayerConfig((layout, *(PLAIN,) * (len(node.inputs) - 1)), (layout,), operands, min(src.nbytes, dst.nbytes) // 2)

    def _throughout(self, layout: Layout, node: TypedNode) -> LayerConfig:
        """All operands in one layout, to avoid reorders between neighbours."""
        config = self._config(node, layout)
        found = self.plan(relaid(node, config), False, False)
        if "ref" in found.name or "gemm" in found.name:
            raise Refused(Reason.LAYOUT, f"only {found.name} takes {layout}")
        return config

    def _from_plain(self, node: TypedNode) -> LayerConfig:
        node = as_images(node)
        found = self._plan(node, describe(node.given(0)), activation(node, "output", True), True, False)
        if "jit" not in found.name or "gemm" in found.name:
            raise Refused(Reason.LAYOUT, f"only {found.name} takes a plain input")
        return found.config(node)

    def _plan(self, node: TypedNode, src: MemoryDesc, dst: MemoryDesc, free: bool, shared: bool) -> NodePlan:
        if node.given(0).rank > 5:
            raise Refused(Reason.SHAPE, f"{node.given(0)}; accepted: one to three spatial axes")
        lib, op = library(), cast("Conv | ConvTranspose", node.op)
        g = op.geometry(node.given(0), node.given(1))
        wei = weights_of(node.given(1), op.group, not isinstance(op, Conv))
        # Constant weights are brought into the data type of the activations too.
        wanted = lib.tagged(wei.dims, TAG_ANY, src.dtype) if is_constant(node, 1) else wei
        given_bias = node.optional(2)
        bias = None if given_bias is None else describe(given_bias)
        chain = attach(node, free, shared, sums=True)
        gaps = tuple(d - 1 for d in g.dilations)
        sizes = (g.strides, gaps, g.pads_begin, self.padding_end(g))
        args = (INFERENCE, self.algorithm, src, wanted, bias, dst, *sizes)
        instead = preferred(op, node.given(0), node.outputs[0]) if isinstance(op, Conv) else FIRST
        pd = lib.describe(self.primitive, *args, attr=chain.attr, instead=instead)
        found_dst = lib.taken(pd, Arg.DST, dst)
        arguments = [
            Argument(Arg.SRC, "input", 0, lib.taken(pd, Arg.SRC, src), flexible=True),
            Argument(Arg.WEIGHTS, "input", 1, wei, lib.arg_md(pd, Arg.WEIGHTS, wei.dims) if is_constant(node, 1) else None),
            Argument(Arg.DST, "output", 0, found_dst, flexible=True),
        ]
        if bias is not None:
            arguments.append(Argument(Arg.BIAS, "input", 2, bias))
        return NodePlan(chain.stages(pd, arguments, found_dst), chain.shared)


def grouped(dims: Sequence[int], strides: Sequence[int], groups: int, axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dimensions and strides with `groups` split off `axis` and put first."""
    inner = dims[axis] // groups
    shape = (groups, *dims[:axis], inner, *dims[axis + 1 :])
    return shape, (inner * strides[axis], *strides)


def weights_of(tensor: TensorType, groups: int, transposed: bool) -> MemoryDesc:
    """Row-major ONNX weights, [M, C / groups, ...] or transposed [C, M / groups, ...], in oneDNN's order of dimensions."""
    shape, strides = tensor.dims, plain_strides(tensor.dims)
    if groups > 1:
        shape, strides = grouped(shape, strides, groups, 0)
    if transposed:
        a, b = (1, 2) if groups > 1 else (0, 1)
        order = list(range(len(shape)))
        order[a], order[b] = b, a
        shape, strides = tuple(shape[i] for i in order), tuple(strides[i] for i in order)
    return library().strided(shape, strides, number_of(tensor.dtype))
