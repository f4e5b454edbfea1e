"""Pooling in the layout that the data has."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from dovetail.device import Reason, TypedNode
from dovetail_cpu_onednn.binding import INFERENCE, Alg, Arg, Stream
from dovetail_cpu_onednn.descriptors import describe
from dovetail_cpu_onednn.kernel import LOW, AnyLayoutKernel, Argument, NodePlan, Refused, given
from dovetail_cpu_onednn.kernels._conv import padding
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.nan.scan import holds_no_nan_or
from dovetail_cpu_onednn.post_ops import attach
from dovetail_ops_onnx.spatial import ConvGeometry

__all__ = ["MaximumKernel", "PoolKernel", "whole"]


class PoolKernel(AnyLayoutKernel):
    """Base: the algorithm and the geometry."""

    name = "pooling"
    dtypes = LOW

    @abstractmethod
    def algorithm(self, node: TypedNode, g: ConvGeometry) -> int:
        """oneDNN's number. Raises `Refused` for what it does not count as ONNX does."""

    @abstractmethod
    def geometry(self, node: TypedNode) -> ConvGeometry:
        """The geometry of the node."""

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        if given(node, 0).rank not in (3, 4, 5):
            raise Refused(Reason.SHAPE, f"{given(node, 0)}; accepted: one to three spatial axes")
        result = node.outputs[0].dims
        if any(t.dims == result and any(size != 1 for axis, size in enumerate(result) if axis != 1) for t in node.operands):
            # Measured: it computes plain layouts channel by channel from copies and reads the operand in their order.
            raise Refused(Reason.POST_OP, "oneDNN's pooling reads an operand of the result's shape in another order")
        lib, g = library(), self.geometry(node)
        src, dst = describe(given(node, 0)), describe(node.outputs[0])
        chain = attach(node, False, False)
        gaps = tuple(d - 1 for d in g.dilations)
        sizes = (g.strides, g.kernel, gaps, g.pads_begin, padding(g))
        pd = lib.describe("pooling_forward", INFERENCE, self.algorithm(node, g), src, dst, *sizes, attr=chain.attr)
        arguments = (Argument(Arg.SRC, "input", 0, src), Argument(Arg.DST, "output", 0, dst))
        return NodePlan(chain.stages(pd, arguments, dst), chain.shared)


class MaximumKernel(PoolKernel):
    """The largest element of each window. oneDNN passes over NaN, and starts from the lowest number, not from minus infinity."""

    def algorithm(self, node: TypedNode, g: ConvGeometry) -> int:
        return Alg.POOLING_MAX

    def is_guarded(self, node: TypedNode) -> bool:
        return given(node, 0).dtype in LOW

    def safety(self, node: TypedNode, array: Callable[[str], NDArray[Any]], stream: Stream) -> Callable[[], bool]:
        """Whether the input holds neither NaN nor minus infinity."""
        return holds_no_nan_or(array(node.node.inputs[0]), stream, -math.inf)


def whole(node: TypedNode) -> ConvGeometry:
    """The window of the global operators: everything."""
    dims = given(node, 0).dims[2:]
    ones, zeros = (1,) * len(dims), (0,) * len(dims)
    return ConvGeometry(dims, ones, dims, ones, ones, zeros, zeros)
