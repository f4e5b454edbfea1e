"""BitCast: the bytes as they are."""

from collections.abc import Sequence

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernels._copy import Move, MoveKernel

__all__ = ["KERNELS"]


class BitCast(MoveKernel):
    """A copy: both types have the same width."""

    only_moves = False

    def moves(self, node: TypedNode) -> Sequence[Move]:
        size = node.outputs[0].size
        return [Move(node.node.inputs[0], node.node.outputs[0], (size,), (1,), (1,))]


KERNELS = (BitCast(),)
