"""ConvTranspose: each output element gathers what reaches it, so that nothing is added up by two work items."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, spread
from dovetail_gpu_opencl.kernels._conv import has_bias
from dovetail_gpu_opencl.kernels._spatial import MAX_SPATIAL, WINDOW, named, spatial_arguments, spatial_defines
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Read, Scalar, Write, ints
from dovetail_gpu_opencl.source import STORED_TYPES, accumulator, assemble, storage
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.spatial import ConvGeometry

__all__ = ["KERNELS"]

MAPS = 8
"""Output channels for each work item: each input element that it reads serves them all."""


class _Transposed(CLKernel):
    """The base. Constant weights are put with the output channels last, so that a work item reads its own in one run."""

    def sizes(self, node: TypedNode) -> tuple[int, int, int, int]:
        """Groups, the input and output channels of each, and how many of these a work item computes."""
        assert isinstance(node.op, ConvTranspose)
        maps = node.given(1).dims[1]
        return node.op.group, node.given(0).dims[1] // node.op.group, maps, min(MAPS, 1 << (max(1, maps) - 1).bit_length())

    def launch(
        self,
        node: TypedNode,
        defines: Mapping[str, object],
        numbers: Sequence[Scalar],
        work: tuple[int, ...],
        local: Any,
        vec: int = 1,
    ) -> tuple[Launch, ...]:
        """The launch of the file of this name, with `numbers` behind groups, channels and the steps of the weights."""
        names, (groups, own, maps, block) = node.node.inputs, self.sizes(node)
        weights, steps = _weights(node, maps, _geometry(node).kernel_size)
        chain = post_ops.epilogue(node, vec)
        bias = (Read(names[2]),) if has_bias(node) else ()
        given = (*ints(groups, own, maps, *steps), *numbers, *chain.arguments)
        arguments = (Read(names[0]), weights, *bias, Write(node.node.outputs[0]), *given)
        acc = accumulator(node.outputs[0].dtype)
        file = f"{self.name}.cl"
        source = assemble(file, {**defines, "ACC": acc, "HAS_BIAS": has_bias(node), "MAPS": block}, chain.source)
        return (Launch(file, source, self.name, arguments, work, local),)


class Rows(_Transposed):
    """For CPUs: conv_transpose_rows.cl."""

    name = "conv_transpose_rows"
    most = 16
    """The largest stride, for which the sums of all remainders are kept."""

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "CPU":
            return Refusal(Reason.CAPABILITY, "made for CPUs")
        g = _geometry(node)
        if not 0 < g.rank < MAX_SPATIAL or g.strides[-1] > self.most:
            return Refusal(Reason.ATTRIBUTE, f"{g.rank} spatial axes, strides {g.strides}; accepted: 1 or 2, up to {self.most}")
        return None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        groups, _, maps, block = self.sizes(node)
        numbers, dst = spatial_defines(_geometry(node)), node.outputs[0]
        vec = self.caps.lanes(accumulator(dst.dtype))
        defines = {"T": STORED_TYPES[dst.dtype], **{name: numbers[name] for name in WINDOW}, "VEC": vec}
        work = (numbers["OH"], ceil_div(maps, block), dst.dims[0] * groups)
        return self.launch(node, defines, named(numbers, "IH IW OH OW PAD_Y PAD_X"), work, (1, 1, 1), vec)


class Gathered(_Transposed):
    """One place a work item: conv_transpose.cl."""

    name = "conv_transpose"
    halves_by_load = True

    def check(self, node: TypedNode) -> Refusal | None:
        rank = _geometry(node).rank
        return None if rank <= MAX_SPATIAL else Refusal(Reason.SHAPE, f"{rank} spatial axes")

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        (groups, _, maps, block), dst, g = self.sizes(node), node.outputs[0], _geometry(node)
        work, local = spread(dst.dims[0] * groups * ceil_div(maps, block) * math.prod(g.output), self.caps)
        return self.launch(node, storage(dst.dtype), (*ints(dst.dims[0]), *spatial_arguments(g)), work, local)


def _weights(node: TypedNode, maps: int, taps: int) -> tuple[Argument, tuple[int, int, int]]:
    """The weights, and the distances between neighbouring input channels, output channels and kernel elements."""
    wei = node.given(1)
    if wei.value is None:
        return Read(node.node.inputs[1]), (maps * taps, taps, 1)
    rows = wei.value.reshape(wei.dims[0], maps, taps)
    return Constant(np.ascontiguousarray(rows.transpose(0, 2, 1))), (maps * taps, 1, maps)


def _geometry(node: TypedNode) -> ConvGeometry:
    assert isinstance(node.op, ConvTranspose)
    return node.op.geometry(node.given(0), node.given(1))


KERNELS = (Rows(), Gathered())
