"""ConvTranspose: a product where windows do not overlap, a convolution where they are whole strides, else a deconvolution."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import BYXF, PLAIN, LayerConfig, Reason, TypedNode, same_bytes
from dovetail_cpu_onednn.binding import F32, TAG_ANY, Alg, Arg, MemoryDesc
from dovetail_cpu_onednn.descriptors import number_of, plain, plain_strides
from dovetail_cpu_onednn.elementwise import MAX
from dovetail_cpu_onednn.kernel import Argument, NodePlan, PrimitiveKernel, Refused, Stage, is_constant
from dovetail_cpu_onednn.kernels._conv import ConvKernel
from dovetail_cpu_onednn.kernels._sequence import Repeated, WholeStrides
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.node_plans import cached_plan
from dovetail_cpu_onednn.post_ops import BINARY, Appended, attach, is_one_element_a_channel, require_no_columns
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.spatial import ConvGeometry


class NonOverlapping(PrimitiveKernel):
    """Windows without overlaps and gaps, channels last: a product [pixels, C] @ [C, window * M], whose rows hold whole windows,
    and a reorder that puts the lines of each window below each other.

    oneDNN takes 1 to 10 ms to choose a deconvolution of another size, and computes it more slowly: for the heads of a text
    detector, windows of 2 x 2, 0.24 ms (24 channels of 80 x 32 to 24) and 0.67 (24 of 160 x 64 to 1), and so 0.20 and 0.20.
    """

    name = "non-overlapping"

    @cached_plan
    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        x, result = node.given(0), node.outputs[0]
        window = _window(node)
        if not free and not all(same_bytes(t, t.with_layout(BYXF)) for t in (x, result)):
            raise Refused(Reason.LAYOUT, "accepted: channels last")
        if any(operand.size != 1 for operand in node.operands):
            raise Refused(Reason.POST_OP, "accepted: numbers, one for all channels")
        lib, channels = library(), x.dims[1]
        pixels, columns = x.size // channels, math.prod(window) * result.dims[1]
        src, wei, dst = plain((pixels, channels)), plain((channels, columns)), plain((pixels, columns))
        bias = plain((1, columns)) if len(node.inputs) > 2 and node.inputs[2] is not None else None
        chain = attach(node, False, False, dims=(pixels, columns))
        pd = lib.describe("matmul", src, lib.tagged(wei.dims, TAG_ANY), bias, dst, attr=chain.attr)
        if not pd.implementation.startswith("brg"):
            raise Refused(Reason.CAPABILITY, f"only {pd.implementation} computes the product")
        moves = _moves(x.dims, window, result.dims[1])
        written = ("scratch" if moves else "output", 0)
        arguments = [
            Argument(Arg.SRC, "input", 0, src),
            Argument(Arg.WEIGHTS, "input", 1, wei, lib.arg_md(pd, Arg.WEIGHTS, wei.dims), repack=_columns),
            Argument(Arg.DST, *written, dst),
            *chain.arguments(pd),
        ]
        if bias is not None:
            arguments.append(Argument(Arg.BIAS, "input", 2, bias, repack=Repeated(math.prod(window))))
        product = Stage(pd, tuple(arguments))
        return NodePlan((product, *moves), scratch=(lib.nbytes(dst),) if moves else ())

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        parameters = (PLAIN,) * (len(node.inputs) - 1)
        return (LayerConfig((BYXF, *parameters), (BYXF,), (PLAIN,) * len(node.operands)),)


def _window(node: TypedNode) -> tuple[int, ...]:
    """The size of the windows. Raises `Refused` unless they neither overlap nor have gaps."""
    op, x, wei = node.op, node.given(0), node.given(1)
    assert isinstance(op, ConvTranspose)
    if not 3 <= x.rank <= 5 or op.group != 1:
        raise Refused(Reason.SHAPE, f"{x} in {op.group} groups; accepted: one group, one to three spatial axes")
    g = op.geometry(x, wei)
    whole = tuple(size * stride for size, stride in zip(g.input, g.strides, strict=True))
    if not g.kernel == g.extent == g.strides or g.output != whole or any(g.pads_begin):
        raise Refused(Reason.ATTRIBUTE, "windows overlap, have gaps, or are cut off")
    if not all(is_constant(node, index) for index, t in enumerate(node.inputs) if index and t is not None):
        raise Refused(Reason.OPERATOR, "weights that are computed")
    return g.kernel


def _columns(weights: NDArray[Any]) -> NDArray[Any]:
    """ONNX's [C, M, ...] as [C, window * M]."""
    return np.moveaxis(weights, 1, -1).reshape(len(weights), -1)


def _moves(dims: Sequence[int], window: Sequence[int], maps: int) -> tuple[Stage, ...]:
    """The copy of [N, pixels, windows, M] so that the lines of each window are in their places; none for windows of one line."""
    if math.prod(window[:-1]) == 1:
        return ()
    lib, batch, pixels = library(), dims[0], dims[2:]
    # The elements of a line stay together, and so do the images of a batch and their first axis.
    shape = (batch * pixels[0], *pixels[1:], *window[:-1], window[-1] * maps)
    steps = plain_strides((batch, *(n * k for n, k in zip(pixels, window, strict=True)), maps))[1:-1]
    places = tuple(step * k for step, k in zip(steps, window, strict=True))
    src, dst = plain(shape), lib.strided(shape, (*places, *steps[:-1], 1))
    arguments = (Argument(Arg.SRC, "scratch", 0, src), Argument(Arg.DST, "output", 0, dst))
    return (Stage(lib.describe_reorder(src, dst), arguments),)


class Deconvolution(ConvKernel):
    """Transposed convolution in one to three dimensions, with groups and dilation."""

    name = "deconvolution"
    primitive = "deconvolution_forward"
    algorithm = Alg.DECONVOLUTION_DIRECT

    def padding_end(self, g: ConvGeometry) -> Sequence[int]:
        spans = zip(g.input, g.strides, g.extent, g.pads_begin, g.output, strict=True)
        return tuple((i - 1) * s + e - begin - size for i, s, e, begin, size in spans)

    def _plan(self, node: TypedNode, src: MemoryDesc, dst: MemoryDesc, free: bool, shared: bool) -> NodePlan:
        """Where oneDNN makes it of the gradient of a convolution, bias and post-ops come behind it, in a second primitive.

        There oneDNN computes them number by number: 64 x 80 x 80 numbers take 0.1 ms, with a bias 1.6, with a relu 20.
        """
        bias = node.optional(2)
        found = super()._plan(node, src, dst, free, shared)
        if not found.name.startswith("conv:") or (bias is None and not node.post_ops) or dst.dtype != F32:
            return found
        if is_one_element_a_channel(node.outputs[0].dims):
            return found  # the second primitive would add the bias of the first channel to all
        inner = replace(node.node, post_ops=(), inputs=node.node.inputs[:2])
        bare = super()._plan(replace(node, node=inner, inputs=node.inputs[:2], operands=()), src, dst, free, False)
        lib, result = library(), next(a.desc for a in bare.stages[0].arguments if a.place == "output")
        places = (Arg.SRC, Arg.SRC_1, Arg.DST)
        arguments = [Argument(arg, "output", 0, result, flexible=True) for arg in places]
        before: list[Appended] = []
        if bias is not None:
            vector = plain((1, *bias.dims, *(1,) * (node.outputs[0].rank - 2)), number_of(bias.dtype))
            before.append(("binary", (BINARY["add"], vector)))
            arguments.append(Argument(Arg.post_op(0, Arg.SRC_1), "input", 2, vector))
        chain = attach(node, free, False, before=before)
        require_no_columns(result, chain.operands)
        pd = lib.describe("binary", MAX, result, result, result, attr=chain.attr)
        return NodePlan((*bare.stages, Stage(pd, (*arguments, *chain.arguments(pd)))))


KERNELS = (NonOverlapping(), WholeStrides(), Deconvolution())
