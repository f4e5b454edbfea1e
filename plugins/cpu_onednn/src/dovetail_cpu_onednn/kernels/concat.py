"""Concat: oneDNN's concat, in the layout that all inputs have. Short rows are copied by NumPy."""

import math
from collections.abc import Callable, Iterable

import numpy as np

from dovetail.device import PLAIN, Reason, TypedNode
from dovetail_cpu_onednn.binding import Arg
from dovetail_cpu_onednn.descriptors import describe
from dovetail_cpu_onednn.kernel import LOW, AnyLayoutKernel, Argument, NodePlan, Refused, Stage, given
from dovetail_cpu_onednn.kernels._movement import StridedCopy
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.python_kernel import Array
from dovetail_ops_onnx.concat import Concat

SHORT, MANY = 64, 64
"""Bytes of each input in a row of the result, and how many rows. 2 x 8,400 rows of 4 numbers: oneDNN 164 us, NumPy 12."""


class Concatenation(AnyLayoutKernel):
    """Inputs one behind the other along an axis."""

    name = "concat"
    dtypes = LOW
    data = None

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        assert isinstance(node.op, Concat)
        if node.post_ops:
            raise Refused(Reason.POST_OP, "concat takes no post-ops")
        if _has_short_rows(node):
            raise Refused(Reason.SHAPE, f"many rows of up to {SHORT} bytes, which NumPy copies faster")
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
        inputs, dst, axis = [array(name) for name in node.node.inputs], array(node.node.outputs[0]), node.op.axis
        if node.outputs[0].layout == PLAIN and _has_short_rows(node):
            yield from _rows(inputs, dst, axis)
            return
        start, dst = 0, dst.swapaxes(axis, 0)
        for src in (data.swapaxes(axis, 0) for data in inputs):
            yield dst[start : start + src.shape[0]], src
            start += src.shape[0]


def _has_short_rows(node: TypedNode) -> bool:
    assert isinstance(node.op, Concat)
    dst = node.outputs[0]
    at = node.op.axis % dst.rank
    sizes = (math.prod(t.dims[at:]) * t.dtype.numpy.itemsize for t in node.inputs if t is not None)
    return math.prod(dst.dims[:at]) >= MANY and max(sizes) <= SHORT


def _rows(inputs: Iterable[Array], dst: Array, axis: int) -> Iterable[tuple[Array, Array]]:
    """Each input's part of a row as one element: NumPy copies elements of any size at once, but short rows one by one."""
    at, start = axis % dst.ndim, 0
    rows, line = math.prod(dst.shape[:at]), math.prod(dst.shape[at:]) * dst.itemsize
    target = dst.reshape(-1).view(np.uint8)
    for src in inputs:
        if size := math.prod(src.shape[at:]) * src.itemsize:
            whole = np.dtype((np.void, size))
            yield np.ndarray((rows,), whole, target, start, (line,)), src.reshape(-1).view(whole)
        start += size


KERNELS = (Concatenation(), ConcatCopy())
