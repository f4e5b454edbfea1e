"""ReverseSequence."""

import math

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._copy import WORDS
from dovetail_gpu_opencl.launch import Argument, Fault, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import MOVABLE, assemble
from dovetail_ops_onnx.reverse_sequence import ReverseSequence

__all__ = ["KERNELS"]


class ReverseSequenceKernel(CLKernel):
    """reverse_sequence.cl: an element a work item; a length out of range is taken as 0 and raises the fault flag."""

    name = "reverse_sequence"
    dtypes = MOVABLE
    has_epilogue = False
    computes = False

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, ReverseSequence)
        dst, time_axis = node.outputs[0], node.op.time_axis
        arguments: tuple[Argument, ...] = (
            *(Read(name) for name in node.node.inputs),
            Write(node.node.outputs[0]),
            *ints(dst.size, *dst.dims[:2], math.prod(dst.dims[2:]), time_axis),
            Fault(f"a sequence length is out of range; accepted: 0 to {dst.dims[time_axis]}"),
        )
        source = assemble("reverse_sequence.cl", {"T": WORDS[dst.dtype.itemsize]})
        work, local = spread(dst.size, self.caps)
        return (Launch("reverse_sequence.cl", source, self.name, arguments, work, local),)


KERNELS = (ReverseSequenceKernel(),)
