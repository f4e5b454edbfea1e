"""Concat: oneDNN's concat, in the layout that all inputs have."""

import math
from collections.abc import Callable, Iterable

from dovetail.device import Reason, TypedNode
from dovetail_cpu_onednn.binding import Arg
from dovetail_cpu_onednn.descriptors import describe
from dovetail_cpu_onednn.kernel import LOW, AnyLayoutKernel, Argument, NodePlan, Refused, Stage
from dovetail_cpu_onednn.kernels._movement import StridedCopy
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.python_kernel import Array
from dovetail_ops_onnx.concat import Concat

_MANY, _SHORT = 256, 64
"""Runs of an input from which on, and bytes of each up to which, copies by NumPy take less time than the primitive: 8,400 runs of
4 bytes from each of four inputs 12 us for 151, 12,352 of 16 from two 16 for 122.
"""


class Concatenation(AnyLayoutKernel):
    """Inputs one behind the other along an axis."""

    name = "concat"
    dtypes = LOW
    data = None

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        assert isinstance(node.op, Concat)
        if node.post_ops:
            raise Refused(Reason.POST_OP, "concat takes no post-ops")
        if _has_short_runs(node, node.op.axis % node.outputs[0].rank):
            raise Refused(Reason.SHAPE, f"many runs of up to {_SHORT} bytes; NumPy takes less time for them")
        sources = [describe(node.given(index)) for index in range(len(node.inputs))]
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


def _has_short_runs(node: TypedNode, axis: int) -> bool:
    """Whether the result is made of many runs of few bytes."""
    result = node.outputs[0]
    longest = max(math.prod(node.given(index).dims[axis:]) for index in range(len(node.inputs)))
    return math.prod(result.dims[:axis]) >= _MANY and longest * result.dtype.itemsize <= _SHORT


KERNELS = (Concatenation(), ConcatCopy())
