"""Concat: oneDNN's concat, in the layout that all inputs have."""

from collections.abc import Callable, Iterable

from dovetail.device import Reason, TypedNode
from dovetail_cpu_onednn.binding import Arg
from dovetail_cpu_onednn.descriptors import describe
from dovetail_cpu_onednn.kernel import LOW, AnyLayoutKernel, Argument, NodePlan, Refused, Stage, given
from dovetail_cpu_onednn.kernels._movement import StridedCopy
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.python_kernel import Array
from dovetail_ops_onnx.concat import Concat


class Concatenation(AnyLayoutKernel):
    """Inputs one behind the other along an axis."""

    name = "concat"
    dtypes = LOW
    data = None

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        assert isinstance(node.op, Concat)
        if node.post_ops:
            raise Refused(Reason.POST_OP, "concat takes no post-ops")
        sources = [describe(given(node, index)) for index in range(len(node.inputs))]
        dst = describe(node.outputs[0])
        pd = library().describe_concat(dst, node.op.axis % len(dst.dims), sources)
        reads = [Argument(Arg.MULTIPLE_SRC + i, "input", i, desc) for i, desc in enumerate(sources)]
        return NodePlan((Stage(pd, (*reads, Argument(Arg.DST, "output", 0, dst))),))


class ConcatCopy(StridedCopy):
    """A copy of each input into its slice of the result, for other data types than the primitive's."""

    data = None

    def pairs(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[tuple[Array, Array]]:
        assert isinstance(node.op, Concat)
        axis, start = node.op.axis, 0
        dst = array(node.node.outputs[0]).swapaxes(axis, 0)
        for name in node.node.inputs:
            src = array(name).swapaxes(axis, 0)
            yield dst[start : start + src.shape[0]], src
            start += src.shape[0]


KERNELS = (Concatenation(), ConcatCopy())
