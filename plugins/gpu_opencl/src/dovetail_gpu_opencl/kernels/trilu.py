"""Trilu."""

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._copy import WORDS
from dovetail_gpu_opencl.launch import Argument, Launch, Null, Read, Write, ints
from dovetail_gpu_opencl.source import MOVABLE, assemble
from dovetail_ops_onnx.trilu import Trilu

__all__ = ["KERNELS"]


_ROWS = 4
"""Rows of a work group on CPUs."""


class TriluKernel(CLKernel):
    """trilu.cl: an element a work item, on CPUs a row; the diagonal may be known at run time only."""

    name = "trilu"
    dtypes = MOVABLE
    has_epilogue = False
    computes = False

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        dst, names = node.outputs[0], node.node.inputs
        assert isinstance(node.op, Trilu)
        diagonal: Argument = Read(names[1]) if len(names) > 1 and names[1] else Null()
        by_rows = self.caps.kind == "CPU" and dst.size > 0
        size = dst.size // dst.dims[-1] if by_rows else dst.size
        arguments = (Read(names[0]), diagonal, Write(node.node.outputs[0]), *ints(size, *dst.dims[-2:], int(node.op.upper)))
        source = assemble("trilu.cl", {"T": WORDS[dst.dtype.itemsize]})
        work, local = spread(size, self.caps, _ROWS if by_rows else 128)
        return (Launch("trilu.cl", source, "trilu_rows" if by_rows else self.name, arguments, work, local),)


KERNELS = (TriluKernel(),)
