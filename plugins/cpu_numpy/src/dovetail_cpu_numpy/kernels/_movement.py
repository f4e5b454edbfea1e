"""Operators that copy between an array and strided views of others."""

from abc import abstractmethod
from collections.abc import Iterable

from dovetail.device import Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.launch import Array, Launch, copy
from dovetail_ops_onnx.runs import as_runs

__all__ = ["StridedCopy"]


class StridedCopy(NumpyKernel):
    """Pairs of (destination, source), both views, copied one after the other. Any data type."""

    name = "copy"
    binds_quickly = True

    def refuse(self, node: TypedNode) -> Refusal | None:
        return None

    @abstractmethod
    def pairs(self, call: Call) -> Iterable[tuple[Array, Array]]:
        """The views to copy between: each element of the outputs once."""

    def bind(self, call: Call) -> Iterable[Launch]:
        return (copy(*as_runs(dst, src)) for dst, src in self.pairs(call) if dst.size)
