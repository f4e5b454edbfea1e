"""JoinedSlices: several slices of one value in one launch."""

from collections.abc import Sequence

from dovetail.device import ANY, PLAIN, LayerConfig, TypedNode
from dovetail_gpu_opencl.kernels._copy import Move, MoveKernel
from dovetail_gpu_opencl.kernels._joined_slices import JoinedSlices
from dovetail_gpu_opencl.kernels.slice import Slice

__all__ = ["KERNELS"]


class Slices(MoveKernel):
    """One move for each slice."""

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return (LayerConfig((ANY, *(PLAIN,) * (len(node.inputs) - 1)), (ANY,) * len(node.outputs)),)

    def any_sizes(self, node: TypedNode) -> bool:
        return True

    def moves(self, node: TypedNode) -> Sequence[Move]:
        assert isinstance(node.op, JoinedSlices)
        one = Slice().on(self.caps, self.packed)
        return [move for part in node.op.parts(node) for move in one.moves(part)]


KERNELS = (Slices(),)
