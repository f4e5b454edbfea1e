"""Concat."""

from collections.abc import Sequence

from dovetail.device import ANY, LayerConfig, TypedNode
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.kernels._copy import Move, MoveKernel, part_strides
from dovetail_ops_onnx.concat import Concat

__all__ = ["KERNELS"]


class ConcatCopy(MoveKernel):
    """One move for each input."""

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return (LayerConfig.uniform(node, ANY),)

    def any_sizes(self, node: TypedNode) -> bool:
        return True

    def moves(self, node: TypedNode) -> Sequence[Move]:
        assert isinstance(node.op, Concat)
        dst = node.outputs[0]
        axis = dst.order.index(node.op.axis % dst.rank)  # its place in memory
        strides, found, offset = strides_of(dst.memory_dims), [], 0
        for name, part in zip(node.node.inputs, node.inputs, strict=True):
            assert part is not None
            dims, at = part.memory_dims, offset * strides[axis]
            found.append(Move(name, node.node.outputs[0], dims, part_strides(dims), strides, dst_offset=at, cuts=(axis,)))
            offset += dims[axis]
        return found


KERNELS = (ConcatCopy(),)
