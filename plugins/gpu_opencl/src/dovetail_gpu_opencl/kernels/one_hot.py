"""OneHot."""

import math

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._copy import WORDS
from dovetail_gpu_opencl.launch import Argument, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import MOVABLE, assemble, storage
from dovetail_ops_onnx.one_hot import OneHot

__all__ = ["KERNELS"]


class OneHotKernel(CLKernel):
    """one_hot.cl: an element a work item."""

    name = "one_hot"
    dtypes = MOVABLE
    has_epilogue = False
    computes = False

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, OneHot)
        indices, dst = node.given(0), node.outputs[0]
        axis = node.op.axis % dst.rank
        at = "(x) != (x) ? 0 : convert_long_sat_rtz(x)" if indices.dtype.is_float else "(long)(x)"
        defines = {**storage(indices.dtype, "I"), "T": WORDS[dst.dtype.itemsize], "WHOLE(x)": f"({at})"}
        names = node.node.inputs
        sizes = ints(dst.size, dst.dims[axis], math.prod(dst.dims[axis + 1 :]))
        arguments: tuple[Argument, ...] = (Read(names[0]), Read(names[2]), Write(node.node.outputs[0]), *sizes)
        work, local = spread(dst.size, self.caps)
        return (Launch("one_hot.cl", assemble("one_hot.cl", defines), self.name, arguments, work, local),)


KERNELS = (OneHotKernel(),)
