"""Transpose."""

from collections.abc import Iterable

from dovetail_cpu_numpy.kernel import Call
from dovetail_cpu_numpy.kernels._movement import StridedCopy
from dovetail_cpu_numpy.launch import Array
from dovetail_ops_onnx.transpose import Transpose


class TransposeCopy(StridedCopy):
    """A copy from the transposed view."""

    def pairs(self, call: Call) -> Iterable[tuple[Array, Array]]:
        op, src = call.node.op, call.input(0)
        assert isinstance(op, Transpose)
        yield call.outputs[0], src.transpose(op.order(src.ndim))


KERNELS = (TransposeCopy(),)
