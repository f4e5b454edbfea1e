"""ConvTranspose: each output element gathers what reaches it, so that nothing is added up by two work items."""

import math

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, spread
from dovetail_gpu_opencl.kernels._conv import has_bias
from dovetail_gpu_opencl.kernels._spatial import MAX_SPATIAL, spatial_arguments
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import accumulator, assemble, storage
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.spatial import ConvGeometry

__all__ = ["KERNELS"]

MAPS = 8
"""Output channels for each work item: each input element that it reads serves them all."""


class Gathered(CLKernel):
    """conv_transpose.cl. Constant weights are put with the output channels last, so that a work item reads its own in one run."""

    name = "conv_transpose"
    half_by_load = True
    bfloat16_by_load = True

    def check(self, node: TypedNode) -> Refusal | None:
        rank = _geometry(node).rank
        return None if rank <= MAX_SPATIAL else Refusal(Reason.SHAPE, f"{rank} spatial axes")

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, ConvTranspose)
        dst, g, groups = node.outputs[0], _geometry(node), node.op.group
        own, maps = node.given(0).dims[1] // groups, node.given(1).dims[1]
        weights, steps = _weights(node, maps, g.kernel_size)
        block = min(MAPS, 1 << (max(1, maps) - 1).bit_length())
        defines = {**storage(dst.dtype), "ACC": accumulator(dst.dtype), "HAS_BIAS": has_bias(node), "MAPS": block}
        chain = post_ops.epilogue(node)
        names = node.node.inputs
        blocks = ceil_div(maps, block)
        arguments = (
            Read(names[0]),
            weights,
            *([Read(names[2])] if has_bias(node) else []),
            Write(node.node.outputs[0]),
            *ints(dst.dims[0], groups, own, maps, *steps),
            *spatial_arguments(g),
            *chain.arguments,
        )
        source = assemble("conv_transpose.cl", defines, chain.source)
        work, local = spread(dst.dims[0] * groups * blocks * math.prod(g.output), self.caps)
        return (Launch("conv_transpose.cl", source, "conv_transpose", arguments, work, local),)


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


KERNELS = (Gathered(),)
