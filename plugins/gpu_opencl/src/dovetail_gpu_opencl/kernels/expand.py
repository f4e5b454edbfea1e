"""Expand."""

from collections.abc import Sequence

from dovetail.device import TypedNode
from dovetail_gpu_opencl.broadcast import operand_strides, strides_of
from dovetail_gpu_opencl.kernels._copy import Move, MoveKernel

__all__ = ["KERNELS"]


class Expand(MoveKernel):
    """A copy with stride 0 along the axes that are repeated."""

    def any_sizes(self, node: TypedNode) -> bool:
        return True

    def moves(self, node: TypedNode) -> Sequence[Move]:
        src, dst = node.given(0), node.outputs[0]
        strides = operand_strides(src, dst.dims)
        return [Move(node.node.inputs[0], node.node.outputs[0], dst.dims, strides, strides_of(dst.dims))]


KERNELS = (Expand(),)
