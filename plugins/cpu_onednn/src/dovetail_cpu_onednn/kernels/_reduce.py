"""Reductions over constant axes."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from numpy.typing import NDArray

from dovetail.device import Reason, TypedNode
from dovetail_cpu_onednn.binding import INFERENCE, Alg, Arg, Stream
from dovetail_cpu_onednn.descriptors import plain
from dovetail_cpu_onednn.kernel import Argument, NodePlan, PrimitiveKernel, Refused
from dovetail_cpu_onednn.kernels._ufunc_reduction import EXACT
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.nan.scan import holds_no_nan_or
from dovetail_cpu_onednn.post_ops import attach, times

if TYPE_CHECKING:
    from dovetail_ops_onnx.reduce_sum import ReduceSum  # the others have its methods, and few models have them all

__all__ = ["ColumnKernel", "ExtremeKernel", "ReductionKernel", "refuse_lines"]


class ReductionKernel(PrimitiveKernel):
    """Over some of the axes, the result with or without them."""

    name = "reduction"
    parameters = (1,)
    longest = EXACT
    """Elements of a line up to which NumPy takes less time: it adds up more in two steps, 32 lines of 12,544 in 59 us for 39."""

    def __init__(self, algorithm: int) -> None:
        self.algorithm = algorithm

    def _require(self, node: TypedNode) -> None:
        super()._require(node)
        refuse_lines(node, self.longest)

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        src, chosen = node.given(0), _axes(node)
        dims = tuple(1 if axis in chosen else size for axis, size in enumerate(src.dims))
        given_desc, dst = plain(src.dims), plain(dims)
        if dims == src.dims:
            raise Refused(Reason.SHAPE, "nothing to reduce")
        chain = attach(node, False, False, dims=None if dims == node.outputs[0].dims else dims)
        pd = library().describe("reduction", self.algorithm, given_desc, dst, 0.0, 0.0, attr=chain.attr)
        arguments = (Argument(Arg.SRC, "input", 0, given_desc), Argument(Arg.DST, "output", 0, dst))
        return NodePlan(chain.stages(pd, arguments, dst), chain.shared)


class ExtremeKernel(ReductionKernel):
    """Largest or smallest numbers. oneDNN passes over NaN, and starts from the lowest or highest number, not from infinity.

    The search for both takes a third of the time.
    """

    longest = 1 << 30

    def is_guarded(self, node: TypedNode) -> bool:
        return True

    def safety(self, node: TypedNode, array: Callable[[str], NDArray[Any]], stream: Stream) -> Callable[[], bool]:
        """Whether the input holds neither NaN nor the infinity that every other number replaces."""
        replaced = -math.inf if self.algorithm == Alg.REDUCTION_MAX else math.inf
        return holds_no_nan_or(array(node.node.inputs[0]), stream, replaced)


class ColumnKernel(PrimitiveKernel):
    """Over axes side by side before others, by average pooling with channels last: oneDNN's reduction has only its reference.

    A sum is the average of 2^n rows, of which the last ones are padding, times 2^n: exact where the numbers are whole.
    """

    name = "pooling"
    parameters = (1,)

    def __init__(self, is_mean: bool) -> None:
        self.is_mean = is_mean

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        src, chosen = node.given(0), _axes(node)
        first, end = chosen[0], chosen[-1] + 1
        batch, rows, columns = (math.prod(src.dims[cut]) for cut in (slice(first), slice(first, end), slice(end, None)))
        if len(chosen) != end - first or columns == 1:
            raise Refused(Reason.ATTRIBUTE, f"axes {chosen} of {src}; accepted: side by side, before others")
        if src.size < FEW or rows > EXACT:
            raise Refused(Reason.SHAPE, f"{rows} rows of {src}; accepted: up to {EXACT}, of {FEW} numbers or more")
        if node.operands:
            raise Refused(Reason.POST_OP, "accepted: elementwise functions")
        lib, window = library(), rows if self.is_mean else 1 << (rows - 1).bit_length()
        read = lib.strided((batch, columns, rows, 1), (rows * columns, 1, columns, columns))
        written = lib.strided((batch, columns, 1, 1), (columns, 1, columns, columns))
        chain = attach(node, False, False, before=() if self.is_mean else [times(float(window))])
        how = Alg.POOLING_AVG_INCLUDE_PADDING, read, written, (1, 1), (window, 1), (0, 0), (0, 0), (window - rows, 0)
        pd = lib.describe("pooling_forward", INFERENCE, *how, attr=chain.attr)
        return NodePlan(chain.stages(pd, (Argument(Arg.SRC, "input", 0, read), Argument(Arg.DST, "output", 0, written)), written))


def refuse_lines(node: TypedNode, longest: int = EXACT) -> None:
    """Raise `Refused` for lines that NumPy reduces in less time."""
    op, data = cast("ReduceSum", node.op), node.given(0)
    lines = op.lines(data, _axes(node))
    if lines is None:
        return
    if lines[1] <= op.longest_turned(data.dtype) or (lines[1] <= longest and data.size <= LARGE):
        raise Refused(Reason.SHAPE, f"{lines[0]} lines of {lines[1]}; NumPy takes less time for them")


LARGE = 1 << 21
"""Elements up to which NumPy reduces lines, on one thread. The primitive mixes instructions of SSE and AVX in each, for which
processors of Intel take 0.15 us: 1,024 lines of 384 185 us, by NumPy 32; 8,400 of 80 1,350 and 190, their maxima 380. For few
lines a limit would gain little, and plans would not be taken over across it."""

FEW = 1 << 14
"""NumPy adds up fewer numbers before a primitive is made."""


def _axes(node: TypedNode) -> tuple[int, ...]:
    """The axes to reduce, ascending. Raises `Refused` where they are data or there are none."""
    op, axes = cast("ReduceSum", node.op), node.optional(1)
    if axes is not None and axes.value is None:
        raise Refused(Reason.DYNAMIC, "the axes are not constant")
    chosen = op.reduced_axes(node.given(0).rank, None if axes is None else axes.value)
    if not chosen:
        raise Refused(Reason.ATTRIBUTE, "no axes")
    return chosen
