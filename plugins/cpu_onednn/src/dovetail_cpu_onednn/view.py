"""Operators that only change a shape: the output uses the input's memory."""

from dovetail.device import Accepted, DType, Reason, Refusal, TypedNode
from dovetail_cpu_onednn.kernel import OnednnKernel

__all__ = ["ViewKernel"]


_NO_VIEW = Refusal(Reason.OPERATOR, "moves or computes data")


class ViewKernel(OnednnKernel):
    """An operator whose output is its input under another shape: the memory plan gives both the same bytes."""

    name = "view"

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        if not node.op.is_view or node.inputs[0] is None or node.inputs[0].dtype is DType.STRING:
            return _NO_VIEW
        if node.post_ops or node.node.writes != node.node.outputs[:1]:
            return Refusal(Reason.OPERATOR, "has more to do than a view")
        return Accepted(self.name)
