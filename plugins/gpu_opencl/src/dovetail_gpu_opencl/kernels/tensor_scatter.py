"""TensorScatter."""

import math

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._copy import WORDS
from dovetail_gpu_opencl.launch import Argument, Fault, Launch, Null, Read, Write, ints
from dovetail_gpu_opencl.source import MOVABLE, assemble
from dovetail_ops_onnx.tensor_scatter import TensorScatter

__all__ = ["KERNELS"]


class TensorScatterKernel(CLKernel):
    """tensor_scatter.cl: an element a work item."""

    name = "tensor_scatter"
    dtypes = MOVABLE
    has_epilogue = False
    computes = False

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, TensorScatter)
        dst, update = node.outputs[0], node.given(1)
        axis = node.op.axis % dst.rank
        circular = node.op.mode == "circular"
        length, count = dst.dims[axis], update.dims[axis]
        names = node.node.inputs
        arguments: tuple[Argument, ...] = (
            Read(names[0]),
            Read(names[1]),
            Read(names[2]) if len(names) > 2 and names[2] else Null(),
            Write(node.node.outputs[0]),
            *ints(dst.size, math.prod(dst.dims[1:axis]), length, math.prod(dst.dims[axis + 1 :]), count),
            Fault(f"a write index is out of range; accepted: 0 to {length if circular else length - count}"),
        )
        source = assemble("tensor_scatter.cl", {"T": WORDS[dst.dtype.itemsize], "CIRCULAR": circular})
        work, local = spread(dst.size, self.caps)
        return (Launch("tensor_scatter.cl", source, self.name, arguments, work, local),)


KERNELS = (TensorScatterKernel(),)
