"""PRelu: oneDNN's prelu, for finite slopes and where it has a fast implementation."""

from collections.abc import Callable

import numpy as np

from dovetail.device import Reason, TypedNode
from dovetail_cpu_onednn.binding import INFERENCE, TAG_ANY, Arg, Stream
from dovetail_cpu_onednn.descriptors import describe, plain
from dovetail_cpu_onednn.kernel import AnyLayoutKernel, Argument, NodePlan, Refused, Stage, is_constant, value_of
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.nan.bounds import are_moderate
from dovetail_cpu_onednn.python_kernel import Array


class Slopes(AnyLayoutKernel):
    """One slope for each element or for each channel. A single constant one is spread over the channels.

    oneDNN adds max(x, 0) and slope * min(x, 0), which is NaN for a positive x and a slope of NaN or infinity. Constant slopes
    are checked when the kernel is chosen, others at every run.
    """

    name = "prelu"

    def is_guarded(self, node: TypedNode) -> bool:
        return not is_constant(node, 1)

    def safety(self, node: TypedNode, array: Callable[[str], Array], stream: Stream) -> Callable[[], bool]:
        return are_moderate(node, node.node.inputs[1:2], array)

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        if node.post_ops:
            raise Refused(Reason.POST_OP, "prelu takes none")
        if is_constant(node, 1) and not np.isfinite(value_of(node.given(1).value)).all():
            raise Refused(Reason.ATTRIBUTE, "slopes of NaN or infinity; accepted: finite slopes")
        x, slope = node.given(0), node.given(1)
        desc, dims = describe(x), (1,) * (x.rank - slope.rank) + slope.dims
        fixed = is_constant(node, 1)
        spread = fixed and slope.size == 1 and x.rank > 1
        if spread:
            dims = (1, x.dims[1], *(1,) * (x.rank - 2))
        wei = plain(dims)
        wanted = library().tagged(dims, TAG_ANY) if fixed else wei
        pd = library().describe("prelu_forward", INFERENCE, desc, wanted, desc)
        made = library().arg_md(pd, Arg.WEIGHTS, dims) if fixed else None
        content = (lambda: np.full(dims, value_of(slope.value).reshape(()), np.float32)) if spread else None
        weights = Argument(Arg.WEIGHTS, "input", 1, wei, made, content=content)
        arguments = (Argument(Arg.SRC, "input", 0, desc), weights, Argument(Arg.DST, "output", 0, desc))
        return NodePlan((Stage(pd, arguments),))


KERNELS = (Slopes(),)
