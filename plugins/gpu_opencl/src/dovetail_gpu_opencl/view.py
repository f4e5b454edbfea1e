"""Operators that only change a shape: nothing is launched."""

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.launch import Launch
from dovetail_gpu_opencl.source import C_TYPES

__all__ = ["View"]


class View(CLKernel):
    """Reshape and its kin: the output is the input's memory."""

    name = "view"
    dtypes = frozenset(C_TYPES)
    has_epilogue = False

    def applies(self, node: TypedNode) -> Refusal | None:
        return None if node.op.is_view else Refusal(Reason.OPERATOR, node.op.key)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        return ()
