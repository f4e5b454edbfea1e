"""Pooling in the layout that the data has."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from numpy.typing import NDArray

from dovetail.device import PLAIN, DType, Reason, TensorType, TypedNode
from dovetail_cpu_onednn.binding import INFERENCE, Alg, Arg, Stream
from dovetail_cpu_onednn.descriptors import describe
from dovetail_cpu_onednn.kernel import LOW, AnyLayoutKernel, Argument, NodePlan, Refused, Stage
from dovetail_cpu_onednn.kernels._conv import padding
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.nan.scan import holds_no_nan_or
from dovetail_cpu_onednn.post_ops import attach
from dovetail_ops_onnx.spatial import ConvGeometry

__all__ = ["MaximumKernel", "PoolKernel", "WholeMeanKernel", "whole"]


class PoolKernel(AnyLayoutKernel):
    """Base: the algorithm and the geometry."""

    name = "pooling"
    dtypes = LOW
    reduction: ClassVar[int] = Alg.REDUCTION_MEAN
    """The reduction that computes the same for a window of all elements."""

    @abstractmethod
    def algorithm(self, node: TypedNode, g: ConvGeometry) -> int:
        """oneDNN's number. Raises `Refused` for what it does not count as ONNX does."""

    @abstractmethod
    def geometry(self, node: TypedNode) -> ConvGeometry:
        """The geometry of the node."""

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        if node.given(0).rank not in (3, 4, 5):
            raise Refused(Reason.SHAPE, f"{node.given(0)}; accepted: one to three spatial axes")
        result = node.outputs[0].dims
        full = [(1,) * (len(result) - t.rank) + t.dims == result for t in node.operands]
        if any(full) and any(size != 1 for axis, size in enumerate(result) if axis != 1):
            # Measured: it computes plain layouts channel by channel from copies and reads the operand in their order.
            raise Refused(Reason.POST_OP, "oneDNN's pooling reads an operand of the result's shape in another order")
        lib, g = library(), self.geometry(node)
        if (found := self._by_planes(node, g)) is not None:
            return found
        src, dst = describe(node.given(0)), describe(node.outputs[0])
        chain = attach(node, False, False)
        gaps = tuple(d - 1 for d in g.dilations)
        sizes = (g.strides, g.kernel, gaps, g.pads_begin, padding(g))
        pd = lib.describe("pooling_forward", INFERENCE, self.algorithm(node, g), src, dst, *sizes, attr=chain.attr)
        arguments = (Argument(Arg.SRC, "input", 0, src), Argument(Arg.DST, "output", 0, dst))
        return NodePlan(chain.stages(pd, arguments, dst), chain.shared)

    def _by_planes(self, node: TypedNode, g: ConvGeometry) -> NodePlan | None:
        """Whole planes by oneDNN's reduction, where they are long: 64 of 56 x 56 take 11 us, and by pooling 42 (one thread)."""
        x, result = node.given(0), node.outputs[0]
        length = math.prod(g.kernel)
        if length < (_LONG if length % 16 == 0 else 2 * _LONG):
            return None
        if x.layout != PLAIN or x.dtype is not DType.FLOAT32 or x.dims == result.dims or not _is_whole(g):
            return None
        src, dst, chain = describe(x), describe(result), attach(node, False, False)
        pd = library().describe("reduction", self.reduction, src, dst, 0.0, 0.0, attr=chain.attr)
        if not pd.implementation.startswith("jit"):
            return None
        arguments = (Argument(Arg.SRC, "input", 0, src), Argument(Arg.DST, "output", 0, dst))
        return NodePlan(chain.stages(pd, arguments, dst), chain.shared)


class MaximumKernel(PoolKernel):
    """The largest element of each window. oneDNN passes over NaN, and starts from the lowest number, not from minus infinity."""

    reduction = Alg.REDUCTION_MAX
    stops_nan = True

    def algorithm(self, node: TypedNode, g: ConvGeometry) -> int:
        return Alg.POOLING_MAX

    def is_guarded(self, node: TypedNode) -> bool:
        return node.given(0).dtype in LOW

    def safety(self, node: TypedNode, array: Callable[[str], NDArray[Any]], stream: Stream) -> Callable[[], bool]:
        """Whether the input holds neither NaN nor minus infinity."""
        return holds_no_nan_or(array(node.node.inputs[0]), stream, -math.inf)


class WholeMeanKernel(PoolKernel):
    """The mean of each channel. That of very many float32 numbers is taken in two steps: first along the last axis.

    oneDNN adds up one number after another, so that a single sum of 250,000 is off by 1e-5.
    """

    def algorithm(self, node: TypedNode, g: ConvGeometry) -> int:
        return Alg.POOLING_AVG_EXCLUDE_PADDING

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        plan, g, src = super().plan(node, free, shared), self.geometry(node), node.given(0)
        if src.dtype is not DType.FLOAT32 or len(g.kernel) < 2 or math.prod(g.kernel) <= _EXACT:
            return plan
        lib, rows = library(), TensorType(src.dtype, (*src.dims[:-1], 1), layout=src.layout)
        ones, zeros = (1,) * len(g.kernel), (0,) * len(g.kernel)
        first = ((*ones[:-1], g.kernel[-1]), src, rows)
        second = ((*g.kernel[:-1], 1), rows, node.outputs[0])
        chain = attach(node, False, False)
        stages: list[Stage] = []
        for (kernel, read, written), places in zip((first, second), ((_SRC, _ROWS), (_ROWS, _DST)), strict=True):
            descs = describe(read), describe(written)
            sizes = (ones, kernel, zeros, zeros, zeros)
            attr = chain.attr if written is node.outputs[0] else None
            pd = lib.describe("pooling_forward", INFERENCE, self.algorithm(node, g), *descs, *sizes, attr=attr)
            moved = tuple(Argument(arg, *p, d) for arg, p, d in zip((Arg.SRC, Arg.DST), places, descs, strict=True))
            stages += [Stage(pd, moved)] if attr is None else chain.stages(pd, moved, descs[1])
        return NodePlan(tuple(stages), chain.shared, (lib.nbytes(describe(rows)),))


def _is_whole(g: ConvGeometry) -> bool:
    """Whether there is one window, of all elements and no padding."""
    return g.kernel == g.input and set(g.dilations) == {1} and not any(g.pads_begin) and math.prod(g.output) == 1


_LONG = 1024
"""Elements of a plane, in whole vectors, from which on oneDNN's reduction takes less time: its instructions of SSE among AVX cost
0.2 to 0.8 us a plane, and more for a last part of a vector. 1,280 planes of 7 x 7 took 960 us, by pooling they take 50 (busy)."""
_EXACT = 4096
"""So many numbers are added up in one sum: it is off by 1e-6 at most."""
_SRC, _ROWS, _DST = ("input", 0), ("scratch", 0), ("output", 0)


def whole(node: TypedNode) -> ConvGeometry:
    """The window of the global operators: everything."""
    dims = node.given(0).dims[2:]
    ones, zeros = (1,) * len(dims), (0,) * len(dims)
    return ConvGeometry(dims, ones, dims, ones, ones, zeros, zeros)
