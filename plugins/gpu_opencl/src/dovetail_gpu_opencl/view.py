"""Operators that only change a shape: nothing is launched."""

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.launch import Launch
from dovetail_gpu_opencl.source import MOVABLE

__all__ = ["View"]


class View(CLKernel):
    """Reshape and similar operators: the output uses the input's memory."""

    name = "view"
    dtypes = MOVABLE
    has_epilogue = False
    computes = False

    def applies(self, node: TypedNode) -> Refusal | None:
        if not node.op.is_view:
            return Refusal(Reason.OPERATOR, node.op.key)
        # Only output 0 is the input's memory: the mask of Dropout would have to be written.
        return None if len(node.outputs) == 1 else Refusal(Reason.ATTRIBUTE, f"{len(node.outputs)} outputs")

    def any_sizes(self, node: TypedNode) -> bool:
        return True

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        return ()
