"""CumSum and CumProd."""

import numpy as np

from dovetail.device import TypedNode
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.formulas import Formula
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, spread
from dovetail_gpu_opencl.kernels._axis import NUMBERS, Lines
from dovetail_gpu_opencl.launch import Argument, Constant, Fault, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import C_TYPES, accumulator, assemble, storage
from dovetail_ops_onnx.cum_prod import CumProd
from dovetail_ops_onnx.cum_sum import CumSum

__all__ = ["Cumulative"]


_AHEAD = 8
"""Elements that a work item of a GPU loads at a time: it waits as long for one."""

_ABREAST = 8
"""Lines of a work item of a CPU: neighbours in vectors, others while it waits for a sum."""


class Cumulative(CLKernel):
    """cum_sum.cl: a work item a line, which joins its elements in float, or in 64 bits."""

    name = "cum_sum"
    dtypes = NUMBERS
    halves_by_load = True
    has_epilogue = False

    def __init__(self, start: int, join: str) -> None:
        self._start, self._join = start, join

    def loads_computed(self, node: TypedNode) -> bool:
        return node.given(1).value is not None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        return (self.launch(node),)

    def launch(self, node: TypedNode, computed: Formula | None = None) -> Launch:
        """The launch, with input 0 computed where it is loaded if there is a formula."""
        assert isinstance(node.op, CumProd | CumSum)
        dst, axis = node.outputs[0], node.given(1)
        defines: dict[str, object] = {
            **storage(dst.dtype),
            "ACC": accumulator(dst.dtype),
            "START": self._start,
            "JOIN(a, b)": self._join,
        }
        abreast = _ABREAST if self.caps.kind == "CPU" and axis.value is not None else 1
        defines |= {"AHEAD": _AHEAD if self.caps.kind == "GPU" else 1, "ABREAST": abreast}
        read: tuple[Argument, ...] = (Read(node.node.inputs[0]),)
        if computed is not None:
            defines |= computed.defines
            read = computed.arguments
        common: tuple[Argument, ...] = (
            *read,
            Write(node.node.outputs[0]),
            *ints(int(node.op.exclusive), int(node.op.reverse)),
        )
        arguments: tuple[Argument, ...]
        if axis.value is not None:
            lines = Lines.of(dst.dims, int(axis.value.reshape(())))
            arguments, (work, local) = (*common, *lines.arguments), spread(ceil_div(lines.count, abreast), self.caps, 16)
        else:
            defines["AXIS"] = C_TYPES[axis.dtype]
            shape = Constant(np.array([*dst.dims, *strides_of(dst.dims)], np.int32))
            fault = Fault(f"the axis is not in the range {-dst.rank} to {dst.rank - 1}")
            arguments = (*common, *ints(dst.size), Read(node.node.inputs[1]), shape, *ints(dst.rank), fault)
            work, local = spread(dst.size, self.caps)
        source = assemble("cum_sum.cl", defines, "" if computed is None else computed.source)
        return Launch("cum_sum.cl", source, "cum_sum", arguments, work, local)
