"""TensorScatter."""

import math
from collections.abc import Mapping

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._copy import WORDS
from dovetail_gpu_opencl.kernels._rows_of_caches import copied
from dovetail_gpu_opencl.launch import Argument, Fault, Launch, Null, Read, Write, ints
from dovetail_gpu_opencl.source import MOVABLE, assemble
from dovetail_ops_onnx.tensor_scatter import TensorScatter

__all__ = ["KERNELS"]


class TensorScatterKernel(CLKernel):
    """A copy, which is left out where the cache is a state, and tensor_scatter.cl."""

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
        past, cache = Read(names[0]), Write(node.node.outputs[0])
        copy = copied(past, cache, 1, (dst.size, dst.size), 1, dst.dtype)
        arguments: tuple[Argument, ...] = (
            Read(names[1]),
            Read(names[2]) if len(names) > 2 and names[2] else Null(),
            cache,
            *ints(update.size, math.prod(dst.dims[1:axis]), length, math.prod(dst.dims[axis + 1 :]), count),
            Fault(f"a write index is out of range: the cache {names[0]!r} takes 0 to {length if circular else length - count}"),
        )
        source = assemble("tensor_scatter.cl", {"T": WORDS[dst.dtype.itemsize], "CIRCULAR": circular})
        work, local = spread(update.size, self.caps)
        if not update.size:
            return (copy,)
        return (copy, Launch("tensor_scatter.cl", source, self.name, arguments, work, local))

    def continued(self, node: TypedNode) -> Mapping[str, str]:
        return {node.node.outputs[0]: node.node.inputs[0]}


KERNELS = (TensorScatterKernel(),)
