"""Tile."""

from collections.abc import Sequence

from dovetail.device import TypedNode
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.kernels._copy import Move, MoveKernel

__all__ = ["KERNELS"]


class Tile(MoveKernel):
    """A copy over pairs of axes (repeat, element), with stride 0 along the repeats."""

    def moves(self, node: TypedNode) -> Sequence[Move]:
        src, dst = node.given(0), node.outputs[0]
        dims: list[int] = []
        strides: list[int] = []
        for size, whole, step in zip(src.dims, dst.dims, strides_of(src.dims), strict=True):
            repeats = whole // size if size else 0
            dims += [size] if repeats == 1 else [repeats, size]
            strides += [step] if repeats == 1 else [0, step]
        return [Move(node.node.inputs[0], node.node.outputs[0], tuple(dims), tuple(strides), strides_of(dims))]


KERNELS = (Tile(),)
