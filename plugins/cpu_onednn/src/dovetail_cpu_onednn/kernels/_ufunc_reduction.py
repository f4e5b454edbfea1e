"""Reductions by NumPy, straight into the result: maxima and minima, which oneDNN computes without regard to NaN, and sums and
means for which it has only its reference, such as those over the first axis."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

from dovetail.device import Accepted, Reason, Refusal, TypedNode
from dovetail_cpu_onednn.kernel import given
from dovetail_cpu_onednn.kernels._ufunc import FLOATS, NUMBERS
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel, quiet

if TYPE_CHECKING:
    from dovetail_ops_onnx.reduce_sum import ReduceSum  # the others have its methods, and few models have them all

__all__ = ["UfuncReduction", "is_narrow"]

SOME, TALL = 12, 16
"""Elements of the last axis, and rows for each of them: the maxima of 2,880 rows of 8 take 9 us by columns, by oneDNN 400."""


class UfuncReduction(PythonKernel):
    """By the method `reduce` of a ufunc, over constant axes. `is_mean`: divided by the number of elements, of floats only."""

    name = "ufunc"
    binds_quickly = True

    def __init__(self, ufunc: np.ufunc, is_mean: bool = False) -> None:
        self._ufunc, self._is_mean = ufunc, is_mean

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        if node.post_ops:
            return Refusal(Reason.POST_OP, "a ufunc takes none")
        if given(node, 0).dtype not in (FLOATS if self._is_mean else NUMBERS) or not given(node, 0).size:
            return Refusal(Reason.DTYPE, f"{given(node, 0)}; accepted: numbers, at least one")
        if any(t is not None and t.value is None for t in node.inputs[1:]):
            return Refusal(Reason.DYNAMIC, "the axes are not constant")
        return Accepted(self.name)

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        src, dst = array(node.node.inputs[0]), array(node.node.outputs[0])
        given_axes = node.inputs[1] if len(node.inputs) > 1 else None
        axes = cast("ReduceSum", node.op).reduced_axes(src.ndim, None if given_axes is None else given_axes.value)
        kept = dst.reshape(tuple(1 if a in axes else d for a, d in enumerate(src.shape)))
        if is_narrow(src.shape, axes):
            calls = self._by_column(src, kept[..., 0])
        else:
            calls = [quiet(partial(self._ufunc.reduce, src, axis=axes, dtype=src.dtype, out=kept, keepdims=True))]
        if self._is_mean:
            count = np.asarray(math.prod(src.shape[axis] for axis in axes), src.dtype)
            calls.append(quiet(partial(np.divide, dst, count, dst)))
        return calls

    def _by_column(self, src: Array, dst: Array) -> list[Call]:
        firsts = (src[..., 0], *(dst,) * (src.shape[-1] - 2))
        return [quiet(partial(self._ufunc, first, src[..., column], out=dst)) for column, first in enumerate(firsts, 1)]


def is_narrow(dims: Sequence[int], axes: Sequence[int]) -> bool:
    """Whether many short rows are reduced."""
    return tuple(axes) == (len(dims) - 1,) and 1 < dims[-1] <= SOME and math.prod(dims[:-1]) >= TALL * dims[-1]
