"""LRN: oneDNN's local response normalisation across channels."""

from dovetail.device import Reason, TypedNode
from dovetail_cpu_onednn.binding import INFERENCE, Alg, Arg
from dovetail_cpu_onednn.descriptors import describe
from dovetail_cpu_onednn.kernel import AnyLayoutKernel, Argument, NodePlan, Refused, Stage
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx.lrn import LRN


class ResponseNormalization(AnyLayoutKernel):
    """Regions of an odd number of channels: of an even one oneDNN takes one channel less than ONNX."""

    name = "lrn"

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        op = node.op
        assert isinstance(op, LRN)
        if op.size % 2 == 0:
            raise Refused(Reason.ATTRIBUTE, f"size {op.size}; accepted: odd numbers")
        if node.post_ops:
            raise Refused(Reason.POST_OP, "lrn takes none")
        desc = describe(node.given(0))
        args = (INFERENCE, Alg.LRN_ACROSS_CHANNELS, desc, desc, op.size, op.alpha, op.beta, op.bias)
        pd = library().describe("lrn_forward", *args)
        arguments = (Argument(Arg.SRC, "input", 0, desc), Argument(Arg.DST, "output", 0, desc))
        return NodePlan((Stage(pd, arguments),))


KERNELS = (ResponseNormalization(),)
