"""Operators that only change a shape, and those that move nothing in their layouts: nothing is launched."""

from collections.abc import Sequence

from dovetail.device import NHWC, PLAIN, LayerConfig, Reason, Refusal, TypedNode
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

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        source, result, rest = node.given(0), node.outputs[0], (PLAIN,) * (len(node.inputs) - 1)
        if node.op.stem.startswith("viewed_"):
            return (LayerConfig((source.layout,), (result.layout,)),)
        plain = LayerConfig.uniform(node, PLAIN)
        if min(source.rank, result.rank) < 3 or source.dims[:2] != result.dims[:2]:
            return (plain,)
        # The pixels of an image as a line, or the other way round.
        return (plain, LayerConfig((NHWC, *rest), (NHWC,)))

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        return ()
