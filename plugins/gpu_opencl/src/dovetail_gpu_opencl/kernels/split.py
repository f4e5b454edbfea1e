"""Split."""

from collections.abc import Sequence

from dovetail.device import ANY, PLAIN, LayerConfig, TypedNode
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.kernels._copy import Move, MoveKernel, part_strides
from dovetail_ops_onnx.split import Split

__all__ = ["KERNELS"]


class SplitCopy(MoveKernel):
    """One move for each output."""

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return (LayerConfig((ANY, *(PLAIN,) * (len(node.inputs) - 1)), (ANY,) * len(node.outputs)),)

    def any_sizes(self, node: TypedNode) -> bool:
        return True

    def moves(self, node: TypedNode) -> Sequence[Move]:
        assert isinstance(node.op, Split)
        src = node.given(0)
        axis = node.op.axis % src.rank
        place, strides = src.order.index(axis), strides_of(src.memory_dims)
        found, offset = [], 0
        sizes = node.op.infer(src, *node.inputs[1:])
        written = iter(node.outputs)
        for name, part in zip(node.node.outputs, sizes, strict=True):
            if name:
                dims, at = next(written).memory_dims, offset * strides[place]
                found.append(Move(node.node.inputs[0], name, dims, strides, part_strides(dims), src_offset=at, cuts=(place,)))
            offset += part.dims[axis]
        return found


KERNELS = (SplitCopy(),)
