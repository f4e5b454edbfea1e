"""CumSum and CumProd."""

import numpy as np

from dovetail.device import TypedNode
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._axis import NUMBERS, Lines
from dovetail_gpu_opencl.launch import Argument, Constant, Fault, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import C_TYPES, accumulator, assemble, storage
from dovetail_ops_onnx.cum_prod import CumProd
from dovetail_ops_onnx.cum_sum import CumSum

__all__ = ["Cumulative"]


class Cumulative(CLKernel):
    """cum_sum.cl: a work item a line, which joins its elements in float, or in 64 bits."""

    name = "cum_sum"
    dtypes = NUMBERS
    half_by_load = True
    bfloat16_by_load = True
    has_epilogue = False

    def __init__(self, start: int, join: str) -> None:
        self._start, self._join = start, join

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, CumProd | CumSum)
        dst, axis = node.outputs[0], node.given(1)
        defines = {**storage(dst.dtype), "ACC": accumulator(dst.dtype), "START": self._start, "JOIN(a, b)": self._join}
        common: tuple[Argument, ...] = (
            Read(node.node.inputs[0]),
            Write(node.node.outputs[0]),
            *ints(int(node.op.exclusive), int(node.op.reverse)),
        )
        arguments: tuple[Argument, ...]
        if axis.value is not None:
            lines = Lines.of(dst.dims, int(axis.value.reshape(())))
            arguments, (work, local) = (*common, *lines.arguments), lines.work(self.caps)
        else:
            defines["AXIS"] = C_TYPES[axis.dtype]
            shape = Constant(np.array([*dst.dims, *strides_of(dst.dims)], np.int32))
            fault = Fault(f"the axis is not in the range {-dst.rank} to {dst.rank - 1}")
            arguments = (*common, *ints(dst.size), Read(node.node.inputs[1]), shape, *ints(dst.rank), fault)
            work, local = spread(dst.size, self.caps)
        return (Launch("cum_sum.cl", assemble("cum_sum.cl", defines), "cum_sum", arguments, work, local),)
