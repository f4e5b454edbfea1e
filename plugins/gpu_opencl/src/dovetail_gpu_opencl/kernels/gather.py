"""Gather."""

import math

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._copy import WORDS
from dovetail_gpu_opencl.launch import Argument, Fault, Launch, Read, Write
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import C_TYPES, MOVABLE, assemble
from dovetail_ops_onnx.gather import Gather

__all__ = ["KERNELS"]


class GatherKernel(CLKernel):
    """gather.cl: a word a work item; an index out of range reads element 0 and raises the fault flag."""

    name = "gather"
    dtypes = MOVABLE
    has_epilogue = False
    computes = False

    def check(self, node: TypedNode) -> Refusal | None:
        data, indices = node.given(0), node.given(1)
        if indices.dtype not in (DType.INT32, DType.INT64):
            return Refusal(Reason.DTYPE, f"indices of {indices.dtype}")
        if data.dims[self._axis(node)] == 0 and indices.size:
            return Refusal(Reason.SHAPE, "the axis is empty")
        return None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        data, indices = node.given(0), node.given(1)
        axis = self._axis(node)
        inner, itemsize = math.prod(data.dims[axis + 1 :]), data.dtype.itemsize
        width = max(w for w in (1, 2, 4, 8, 16) if inner % w == 0 and itemsize * w <= max(WORDS))
        bound, size = data.dims[axis], node.outputs[0].size // width
        numbers = {"SIZE": size, "AXIS": bound, "COUNT": indices.size, "INNER": inner // width}
        types = {"T": WORDS[itemsize * width], "INDEX": C_TYPES[indices.dtype]}
        defines, sizes = by_value({**types, **numbers}, ("SIZE", "AXIS"), ("COUNT", "INNER"))
        fault = Fault(f"an index is outside axis {axis} of size {bound}; accepted: {-bound} to {bound - 1}")
        names = node.node.inputs
        arguments: tuple[Argument, ...] = (Read(names[0]), Read(names[1]), Write(node.node.outputs[0]), fault, *sizes)
        work, local = spread(size, self.caps)
        return (Launch("gather.cl", assemble("gather.cl", defines), "gather", arguments, work, local),)

    def _axis(self, node: TypedNode) -> int:
        assert isinstance(node.op, Gather)
        return node.op.axis % node.given(0).rank


KERNELS = (GatherKernel(),)
