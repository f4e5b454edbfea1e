"""Operators that only change a shape: the output uses the input's memory."""

from collections.abc import Iterable

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.launch import Launch

__all__ = ["ViewKernel"]

_COMPUTES = Refusal(Reason.OPERATOR, "moves or computes data")


class ViewKernel(NumpyKernel):
    """An operator whose output is its input under another shape: the memory plan gives both the same bytes."""

    name = "view"

    def refuse(self, node: TypedNode) -> Refusal | None:
        if not node.op.is_view:
            return _COMPUTES
        # With post-ops the output needs separate memory; further outputs have to be written.
        if node.post_ops or node.node.writes != node.node.outputs[:1]:
            return Refusal(Reason.OPERATOR, "has more to do than a view")
        return None

    def bind(self, call: Call) -> Iterable[Launch]:
        return ()
