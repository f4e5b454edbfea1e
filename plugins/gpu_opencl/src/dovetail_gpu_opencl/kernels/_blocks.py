"""DepthToSpace and SpaceToDepth: one strided copy."""

from collections.abc import Sequence

from dovetail.device import TypedNode
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.kernels._copy import Move, MoveKernel
from dovetail_ops_onnx.depth_to_space import DepthToSpace
from dovetail_ops_onnx.space_to_depth import SpaceToDepth

__all__ = ["Blocks"]


class Blocks(MoveKernel):
    """Between channels and blocks of pixels: the axes are split in two and permuted."""

    def __init__(self, *, to_space: bool) -> None:
        self._to_space = to_space

    def moves(self, node: TypedNode) -> Sequence[Move]:
        assert isinstance(node.op, DepthToSpace | SpaceToDepth)
        b = node.op.blocksize
        n, c, h, w = (node.outputs[0] if self._to_space else node.given(0)).dims  # of the wide tensor
        # All places in the order of the wide tensor: image, channel, row, row in the block, column, column in the block.
        dims = (n, c, h // b, b, w // b, b)
        by_block = node.op.mode == "DCR"
        order = (n, b, b, c, h // b, w // b) if by_block else (n, c, b, b, h // b, w // b)
        s = strides_of(order)
        strides = (s[0], s[3], s[4], s[1], s[5], s[2]) if by_block else (s[0], s[1], s[4], s[2], s[5], s[3])
        packed = strides_of(dims)
        src, dst = (strides, packed) if self._to_space else (packed, strides)
        return [Move(node.node.inputs[0], node.node.outputs[0], dims, src, dst)]
