"""ReverseSequence."""

import math

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._copy import WORDS
from dovetail_gpu_opencl.launch import Argument, Fault, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import MOVABLE, assemble
from dovetail_ops_onnx.reverse_sequence import ReverseSequence

__all__ = ["KERNELS"]


_STEPS = 4
"""Steps of a work group on CPUs."""


class ReverseSequenceKernel(CLKernel):
    """reverse_sequence.cl: an element a work item, on CPUs a step; lengths out of range are 0 and raise the fault flag."""

    name = "reverse_sequence"
    dtypes = MOVABLE
    has_epilogue = False
    computes = False

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, ReverseSequence)
        dst, time_axis = node.outputs[0], node.op.time_axis
        inner, by_steps = math.prod(dst.dims[2:]), self.caps.kind == "CPU" and dst.size > 0
        size = dst.size // inner if by_steps else dst.size
        arguments: tuple[Argument, ...] = (
            *(Read(name) for name in node.node.inputs),
            Write(node.node.outputs[0]),
            *ints(size, *dst.dims[:2], inner, time_axis),
            Fault(f"a sequence length is out of range; accepted: 0 to {dst.dims[time_axis]}"),
        )
        source = assemble("reverse_sequence.cl", {"T": WORDS[dst.dtype.itemsize], "BY_STEPS": by_steps})
        work, local = spread(size, self.caps, _STEPS if by_steps else 128)
        return (Launch("reverse_sequence.cl", source, self.name, arguments, work, local),)


KERNELS = (ReverseSequenceKernel(),)
