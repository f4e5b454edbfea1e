"""Convert: a reorder, which changes the data type and, at no further cost, the layout."""

from collections.abc import Sequence

from dovetail.device import PLAIN, LayerConfig, TypedNode
from dovetail_cpu_onednn.binding import Arg
from dovetail_cpu_onednn.descriptors import describe, tokens
from dovetail_cpu_onednn.kernel import LOW, Argument, NodePlan, OnednnKernel, PrimitiveKernel, Stage
from dovetail_cpu_onednn.library import library

__all__ = ["KERNELS"]


class ConvertKernel(PrimitiveKernel):
    """A reorder from one data type to another."""

    name = "convert"
    dtypes = LOW

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        src, dst = describe(node.given(0)), describe(node.outputs[0])
        arguments = (Argument(Arg.SRC, "input", 0, src), Argument(Arg.DST, "output", 0, dst))
        return NodePlan((Stage(library().describe_reorder(src, dst), arguments),))

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        found = [LayerConfig((layout,), (layout,)) for layout in tokens(node.outputs[0].rank)]
        found += [LayerConfig((PLAIN,), (layout,)) for layout in tokens(node.outputs[0].rank)[1:]]
        return found + [LayerConfig((layout,), (PLAIN,)) for layout in tokens(node.outputs[0].rank)[1:]]


KERNELS: tuple[OnednnKernel, ...] = (ConvertKernel(),)
