"""Split."""

from collections.abc import Sequence

from dovetail.device import TypedNode
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.kernels._copy import Move, MoveKernel
from dovetail_ops_onnx.split import Split

__all__ = ["KERNELS"]


class SplitCopy(MoveKernel):
    """One copy for each output."""

    def any_sizes(self, node: TypedNode) -> bool:
        return True

    def moves(self, node: TypedNode) -> Sequence[Move]:
        assert isinstance(node.op, Split)
        src = node.given(0)
        axis = node.op.axis % src.rank
        strides, found, offset = strides_of(src.dims), [], 0
        sizes = node.op.infer(src, *node.inputs[1:])
        written = iter(node.outputs)
        for name, part in zip(node.node.outputs, sizes, strict=True):
            if name:
                own = strides_of(next(written).dims)
                at = offset * strides[axis]
                found.append(Move(node.node.inputs[0], name, part.dims, strides, own, src_offset=at, cuts=(axis,)))
            offset += part.dims[axis]
        return found


KERNELS = (SplitCopy(),)
