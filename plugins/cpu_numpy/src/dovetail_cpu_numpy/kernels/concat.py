"""Concat."""

from collections.abc import Iterable

from dovetail_cpu_numpy.kernel import Call
from dovetail_cpu_numpy.kernels._movement import StridedCopy
from dovetail_cpu_numpy.launch import Array
from dovetail_ops_onnx.concat import Concat


class ConcatCopy(StridedCopy):
    """A copy of each input into its slice of the result."""

    def pairs(self, call: Call) -> Iterable[tuple[Array, Array]]:
        op = call.node.op
        assert isinstance(op, Concat)
        dst, start = call.outputs[0].swapaxes(op.axis, 0), 0
        for index in range(len(call.inputs)):
            src = call.input(index).swapaxes(op.axis, 0)
            yield dst[start : start + src.shape[0]], src
            start += src.shape[0]


KERNELS = (ConcatCopy(),)
