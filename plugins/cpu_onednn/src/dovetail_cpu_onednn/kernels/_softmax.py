"""Softmax and its logarithm."""

import math
from typing import Any

from dovetail.device import Reason, TypedNode
from dovetail_cpu_onednn.binding import INFERENCE, Arg
from dovetail_cpu_onednn.descriptors import number_of, plain
from dovetail_cpu_onednn.kernel import LOW, Argument, NodePlan, PrimitiveKernel, Refused, Stage
from dovetail_cpu_onednn.library import library

__all__ = ["SoftmaxKernel"]


class SoftmaxKernel(PrimitiveKernel):
    """Along one axis, or over everything from an axis on, as operator sets before 13 want it."""

    name = "softmax"
    dtypes = LOW
    overwrites = True
    stops_nan = True

    def __init__(self, algorithm: int) -> None:
        self.algorithm = algorithm

    def is_guarded(self, node: TypedNode) -> bool:
        return True

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        if node.post_ops:
            raise Refused(Reason.POST_OP, "the reference, which runs when there are NaN, takes none")
        dims, inner = node.given(0).dims, 1
        op: Any = node.op
        axis = int(op.axis) % len(dims)
        if node.op.since < 13:
            dims = (math.prod(dims[:axis]), math.prod(dims[axis:]))
        else:
            inner = math.prod(dims[axis + 1 :])
            dims = (math.prod(dims[:axis]), dims[axis])
        if inner > 1:
            # Bringing the axis to the end and back takes three times as long as the reference.
            raise Refused(Reason.ATTRIBUTE, f"axis {axis} with more than one element behind it; accepted: the last")
        src, dst = (plain(dims, number_of(t.dtype)) for t in (node.given(0), node.outputs[0]))
        pd = library().describe("softmax_forward", INFERENCE, self.algorithm, src, dst, 1)
        arguments = (Argument(Arg.SRC, "input", 0, src), Argument(Arg.DST, "output", 0, dst))
        return NodePlan((Stage(pd, arguments),))
