"""Reductions by NumPy, straight into the result: maxima and minima, which oneDNN computes without regard to NaN, and sums and
means for which it has only its reference, such as those over the first axis, or takes longer, such as those of many lines."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

from dovetail.device import BYXF, PLAIN, Accepted, LayerConfig, Reason, Refusal, TypedNode
from dovetail_cpu_onednn.kernels._ufunc import FLOATS, NUMBERS
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel, quiet

if TYPE_CHECKING:
    from dovetail_ops_onnx.reduce_sum import ReduceSum  # the others have its methods, and few models have them all

__all__ = ["EXACT", "UfuncReduction"]

EXACT = 1 << 12
"""Rows of which one sum is off by 1e-6 at most."""


class UfuncReduction(PythonKernel):
    """By the method `reduce` of a ufunc, over constant axes. `is_mean`: divided by the number of elements, of floats only."""

    name = "ufunc"
    binds_quickly = True

    def __init__(self, ufunc: np.ufunc, is_mean: bool = False) -> None:
        self._ufunc, self._is_mean = ufunc, is_mean

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        if node.post_ops:
            return Refusal(Reason.POST_OP, "a ufunc takes none")
        if node.given(0).dtype not in (FLOATS if self._is_mean else NUMBERS) or not node.given(0).size:
            return Refusal(Reason.DTYPE, f"{node.given(0)}; accepted: numbers, at least one")
        if any(t is not None and t.value is None for t in node.inputs[1:]):
            return Refusal(Reason.DYNAMIC, "the axes are not constant")
        return Accepted(self.name)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        """Plain, and with channels last where these are the columns of what is reduced."""
        plain, axes, ranks = LayerConfig.uniform(node, PLAIN), self._axes(node), (node.given(0).rank, node.outputs[0].rank)
        keeps_channels = ranks[0] == ranks[1] or axes[0] > 1
        if not keeps_channels or 1 in axes or not all(BYXF.fits(rank) for rank in ranks):
            return (plain,)
        if self._ufunc is np.add and math.prod(node.given(0).dims[axis] for axis in axes) > EXACT:
            return (plain,)
        return plain, LayerConfig((BYXF, *plain.inputs[1:]), (BYXF,))

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        return self.binding(node)(array)

    def _axes(self, node: TypedNode) -> tuple[int, ...]:
        op, axes = cast("ReduceSum", node.op), node.optional(1)
        return op.reduced_axes(node.given(0).rank, None if axes is None else axes.value)

    def binding(self, node: TypedNode) -> Callable[[Callable[[str], Array]], Iterable[Call]]:
        op, data, axes = cast("ReduceSum", node.op), node.given(0), self._axes(node)
        source, result, is_last = node.node.inputs[0], node.node.outputs[0], node.outputs[0].layout == BYXF
        lines = None if is_last else op.lines(data, axes)
        if lines is not None:
            step, rows = op.lines_step, lines[0]
            return lambda array: (quiet(step(array(source).reshape(lines), array(result).reshape(rows))),)
        if is_last:
            axes = tuple(BYXF.order(data.rank).index(axis) for axis in axes)
        dtype, dims = data.dtype.numpy, tuple(1 if axis in axes else size for axis, size in enumerate(data.memory_dims))
        reduce = partial(self._ufunc.reduce, axis=axes, dtype=dtype, keepdims=True)
        count = np.asarray(math.prod(data.memory_dims[axis] for axis in axes), dtype) if self._is_mean else None

        def bind(array: Callable[[str], Array]) -> Iterable[Call]:
            dst = array(result)
            yield quiet(partial(reduce, array(source), out=dst.reshape(dims)))
            if count is not None:
                yield quiet(partial(np.divide, dst, count, dst))

        return bind
