"""Concat."""

from collections.abc import Sequence

from dovetail.device import TypedNode
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.kernels._copy import Move, MoveKernel
from dovetail_ops_onnx.concat import Concat

__all__ = ["KERNELS"]


class ConcatCopy(MoveKernel):
    """One copy for each input."""

    def any_sizes(self, node: TypedNode) -> bool:
        return True

    def moves(self, node: TypedNode) -> Sequence[Move]:
        assert isinstance(node.op, Concat)
        dst = node.outputs[0]
        axis = node.op.axis % dst.rank
        strides, found, offset = strides_of(dst.dims), [], 0
        for name, part in zip(node.node.inputs, node.inputs, strict=True):
            assert part is not None
            own = strides_of(part.dims)
            at = offset * strides[axis]
            found.append(Move(name, node.node.outputs[0], part.dims, own, strides, dst_offset=at, cuts=(axis,)))
            offset += part.dims[axis]
        return found


KERNELS = (ConcatCopy(),)
