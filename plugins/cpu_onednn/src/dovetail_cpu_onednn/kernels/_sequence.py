"""Transposed convolution over sequences, by windows of some strides each: a convolution and a copy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import BYXF, PLAIN, LayerConfig, Reason, TypedNode, same_bytes
from dovetail_cpu_onednn.binding import FIRST, INFERENCE, TAG_ANY, Alg, Arg, MemoryDesc
from dovetail_cpu_onednn.descriptors import describe, plain
from dovetail_cpu_onednn.kernel import Argument, NodePlan, PrimitiveKernel, Refused, Stage, is_constant
from dovetail_cpu_onednn.kernels._conv import LONG, SEQUENCE
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.node_plans import cached_plan
from dovetail_cpu_onednn.post_ops import attach
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.phases import phase_weights

__all__ = ["Repeated", "WholeStrides"]


@dataclass(frozen=True)
class Repeated:
    """Repeats a bias."""

    times: int

    def __call__(self, bias: NDArray[Any]) -> NDArray[Any]:
        return np.tile(bias, self.times)


class WholeStrides(PrimitiveKernel):
    """Windows of whole strides over one axis, channels last: a convolution whose channels are the maps of all elements of a
    stride, and a copy without the elements before and after the result.

    oneDNN describes a kernel for each column of such a deconvolution. Windows of 4 by strides of 2 over 12,800 columns, 64 to 32
    channels: 1.5 s to choose and 2.0 ms to run, here 1 and 1.9 (one thread).
    """

    name = "whole strides"

    @cached_plan
    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        x, result, rows = node.given(0), node.outputs[0], _rows(node)
        if not free and not all(same_bytes(t, t.with_layout(BYXF)) for t in (x, result)):
            raise Refused(Reason.LAYOUT, "accepted: channels last")
        if any(operand.size != 1 for operand in node.operands):
            raise Refused(Reason.POST_OP, "accepted: numbers, one for all channels")
        lib, (batch, maps, columns) = library(), result.dims
        made = x.with_shape((batch, rows.stride * maps, rows.count))
        src, dst = (describe(t.with_layout(BYXF)) for t in (x, made))
        wei = plain((made.dims[1], x.dims[1], rows.taps))
        bias = plain((made.dims[1],)) if len(node.inputs) > 2 and node.inputs[2] is not None else None
        chain = attach(node, False, False, dims=made.dims)
        args = (INFERENCE, Alg.CONVOLUTION_DIRECT, src, lib.tagged(wei.dims, TAG_ANY), bias, dst)
        sizes = ((1,), (0,), (rows.before,), (rows.after,))
        instead = SEQUENCE if rows.count >= LONG else FIRST
        pd = lib.describe("convolution_forward", *args, *sizes, attr=chain.attr, instead=instead)
        copies = _copies(batch, rows.stride * rows.count * maps, rows.cut * maps, columns * maps)
        arguments = [
            Argument(Arg.SRC, "input", 0, src),
            Argument(Arg.WEIGHTS, "input", 1, wei, lib.arg_md(pd, Arg.WEIGHTS, wei.dims), repack=_Phases(rows.stride)),
            Argument(Arg.DST, "scratch" if copies else "output", 0, dst),
            *chain.arguments(pd),
        ]
        if bias is not None:
            arguments.append(Argument(Arg.BIAS, "input", 2, bias, repack=Repeated(rows.stride)))
        return NodePlan((Stage(pd, tuple(arguments)), *copies), scratch=(lib.nbytes(dst),) if copies else ())

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        parameters = (PLAIN,) * (len(node.inputs) - 1)
        return (LayerConfig((BYXF, *parameters), (BYXF,), (PLAIN,) * len(node.operands)),)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of `stride` elements that the convolution gives: `count`, from windows of `taps` columns with `before` and `after`
    columns of padding. The result begins at element `cut` of the first one.
    """

    stride: int
    taps: int
    before: int
    after: int
    count: int
    cut: int


def _rows(node: TypedNode) -> _Rows:
    """The rows that hold the result. Raises `Refused` unless windows are whole strides over one axis."""
    op, x, wei = node.op, node.given(0), node.given(1)
    assert isinstance(op, ConvTranspose)
    if x.rank != 3 or op.group != 1:
        raise Refused(Reason.SHAPE, f"{x} in {op.group} groups; accepted: one group, one spatial axis")
    g = op.geometry(x, wei)
    (size,), (columns,), (kernel,), (stride,), (begin,) = g.input, g.output, g.kernel, g.strides, g.pads_begin
    if g.dilations != (1,) or kernel % stride:
        raise Refused(Reason.ATTRIBUTE, f"windows of {kernel} elements; accepted: of whole strides ({stride})")
    if not all(is_constant(node, index) for index, t in enumerate(node.inputs) if index and t is not None):
        raise Refused(Reason.OPERATOR, "weights that are computed")
    taps, first = kernel // stride, begin // stride
    count = -(-(begin + columns) // stride) - first
    before, after = taps - 1 - first, first + count - size
    if before < 0 or not 0 <= after < taps:
        raise Refused(Reason.ATTRIBUTE, "elements that no window reaches, or pads longer than a window")
    return _Rows(stride, taps, before, after, count, begin - first * stride)


@dataclass(frozen=True)
class _Phases:
    """The weights of the convolution, from those of the transposed one."""

    stride: int

    def __call__(self, weights: NDArray[Any]) -> NDArray[Any]:
        return phase_weights(weights, (self.stride,))


def _copies(batch: int, made: int, start: int, wanted: int) -> tuple[Stage, ...]:
    """The copy of `wanted` of `made` numbers, from number `start`, for each of a batch; none of them all."""
    if made == wanted:
        return ()
    lib = library()
    src: MemoryDesc = lib.part(plain((batch, made)), (batch, wanted), (0, start))
    dst = plain((batch, wanted))
    return (Stage(lib.describe_reorder(src, dst), (Argument(Arg.SRC, "scratch", 0, src), Argument(Arg.DST, "output", 0, dst))),)
