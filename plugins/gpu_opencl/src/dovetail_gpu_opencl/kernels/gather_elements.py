"""GatherElements."""

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._copy import WORDS
from dovetail_gpu_opencl.launch import Argument, Constant, Fault, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import C_TYPES, MOVABLE, assemble
from dovetail_ops_onnx.gather_elements import GatherElements

__all__ = ["KERNELS"]


class GatherElementsKernel(CLKernel):
    """gather_elements.cl: an element a work item; an index out of range reads element 0 and raises the fault flag."""

    name = "gather_elements"
    dtypes = MOVABLE
    has_epilogue = False
    computes = False

    def check(self, node: TypedNode) -> Refusal | None:
        data, indices = node.given(0), node.given(1)
        return Refusal(Reason.SHAPE, f"data is {data}") if indices.size and not data.size else None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, GatherElements)
        data, indices = node.given(0), node.given(1)
        axis = node.op.axis % data.rank
        steps = list(strides_of(data.dims))
        step, bound = steps[axis], data.dims[axis]
        steps[axis] = 0
        fault = Fault(f"an index is outside axis {axis} of size {bound}; accepted: {-bound} to {bound - 1}")
        arguments: tuple[Argument, ...] = (
            *(Read(name) for name in node.node.inputs),
            Constant(np.array([*indices.dims, *steps], np.int32)),
            Write(node.node.outputs[0]),
            *ints(indices.size, data.rank, bound, step),
            fault,
        )
        defines = {"T": WORDS[data.dtype.itemsize], "INDEX": C_TYPES[indices.dtype]}
        work, local = spread(indices.size, self.caps)
        return (Launch("gather_elements.cl", assemble("gather_elements.cl", defines), self.name, arguments, work, local),)


KERNELS = (GatherElementsKernel(),)
