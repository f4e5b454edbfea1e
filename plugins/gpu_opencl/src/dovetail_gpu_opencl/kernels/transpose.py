"""Transpose."""

from collections.abc import Sequence

from dovetail.device import TypedNode
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.kernels._copy import Move, MoveKernel

__all__ = ["KERNELS"]


class Transpose(MoveKernel):
    """A copy with permuted strides."""

    def moves(self, node: TypedNode) -> Sequence[Move]:
        src, dst = node.inputs[0], node.outputs[0]
        assert src is not None
        order = node.op.perm or tuple(reversed(range(src.rank)))  # type: ignore[attr-defined]  # a Transpose operator
        steps = strides_of(src.dims)
        strides = tuple(steps[axis] for axis in order)
        return [Move(node.node.inputs[0], node.node.outputs[0], dst.dims, strides, strides_of(dst.dims))]


KERNELS = (Transpose(),)
