"""Reductions over constant axes."""

from dovetail.device import Reason, TypedNode
from dovetail_cpu_onednn.binding import Arg
from dovetail_cpu_onednn.descriptors import plain
from dovetail_cpu_onednn.kernel import Argument, NodePlan, PrimitiveKernel, Refused, given
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.post_ops import attach
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.reduce_prod import ReduceProd
from dovetail_ops_onnx.reduce_sum import ReduceSum

__all__ = ["ReductionKernel"]


class ReductionKernel(PrimitiveKernel):
    """Over some of the axes, the result with or without them."""

    name = "reduction"
    parameters = (1,)

    def __init__(self, algorithm: int) -> None:
        self.algorithm = algorithm

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        op, src = node.op, given(node, 0)
        assert isinstance(op, ReduceMean | ReduceProd | ReduceSum)
        axes = node.inputs[1] if len(node.inputs) > 1 else None
        if axes is not None and axes.value is None:
            raise Refused(Reason.DYNAMIC, "the axes are not constant")
        chosen = op.reduced_axes(src.rank, None if axes is None else axes.value)
        if not chosen:
            raise Refused(Reason.ATTRIBUTE, "no axes")
        dims = tuple(1 if axis in chosen else size for axis, size in enumerate(src.dims))
        given_desc, dst = plain(src.dims), plain(dims)
        if dims == src.dims:
            raise Refused(Reason.SHAPE, "nothing to reduce")
        chain = attach(node, False, False, dims=None if dims == node.outputs[0].dims else dims)
        pd = library().describe("reduction", self.algorithm, given_desc, dst, 0.0, 0.0, attr=chain.attr)
        arguments = (Argument(Arg.SRC, "input", 0, given_desc), Argument(Arg.DST, "output", 0, dst))
        return NodePlan(chain.stages(pd, arguments, dst), chain.shared)
