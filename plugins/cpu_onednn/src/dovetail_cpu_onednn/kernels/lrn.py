"""LRN: oneDNN's local response normalisation across channels."""

from dovetail.device import Reason, TypedNode
from dovetail.ops.lrn import LRN
from dovetail_cpu_onednn.binding import INFERENCE, Alg, Arg
from dovetail_cpu_onednn.kernel import AnyLayoutKernel, Argument, Recipe, Refused, Stage, given
from dovetail_cpu_onednn.layouts import describe
from dovetail_cpu_onednn.library import library


class LocalResponse(AnyLayoutKernel):
    """A region of an odd number of channels round each."""

    name = "lrn"

    def recipe(self, node: TypedNode, free: bool, shared: bool) -> Recipe:
        op, src = node.op, given(node, 0)
        assert isinstance(op, LRN)
        if node.post_ops:
            raise Refused(Reason.POST_OP, "lrn takes no post-ops")
        if op.size % 2 == 0 or not 2 <= src.rank <= 5:
            raise Refused(Reason.ATTRIBUTE, f"size {op.size} of {src}; accepted: odd sizes, two to five dimensions")
        desc = describe(src)
        args = (INFERENCE, Alg.LRN_ACROSS_CHANNELS, desc, desc, op.size, op.alpha, op.beta, op.bias)
        pd = library().describe("lrn_forward", *args)
        return Recipe((Stage(pd, (Argument(Arg.SRC, "input", 0, desc), Argument(Arg.DST, "output", 0, desc))),))


KERNELS = (LocalResponse(),)
