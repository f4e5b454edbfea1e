"""Reductions by NumPy, straight into the result: maxima and minima, which oneDNN computes without regard to NaN, and sums and
means for which it has only its reference, such as those over the first axis, or takes longer, such as those of many lines."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

from dovetail.device import Accepted, Reason, Refusal, TypedNode
from dovetail_cpu_onednn.kernel import given
from dovetail_cpu_onednn.kernels._ufunc import FLOATS, NUMBERS
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel, quiet

if TYPE_CHECKING:
    from dovetail_ops_onnx.reduce_sum import ReduceSum  # the others have its methods, and few models have them all

__all__ = ["UfuncReduction"]


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
        return self.binding(node)(array)

    def binding(self, node: TypedNode) -> Callable[[Callable[[str], Array]], Iterable[Call]]:
        op, data, given_axes = cast("ReduceSum", node.op), given(node, 0), node.inputs[1] if len(node.inputs) > 1 else None
        axes = op.reduced_axes(data.rank, None if given_axes is None else given_axes.value)
        (source, result), lines = (node.node.inputs[0], node.node.outputs[0]), op.lines(data, axes)
        if lines is not None:
            step, rows = op.lines_step, lines[0]
            return lambda array: (quiet(step(array(source).reshape(lines), array(result).reshape(rows))),)
        dtype, dims = data.dtype.numpy, tuple(1 if axis in axes else size for axis, size in enumerate(data.dims))
        reduce = partial(self._ufunc.reduce, axis=axes, dtype=dtype, keepdims=True)
        count = np.asarray(math.prod(data.dims[axis] for axis in axes), dtype) if self._is_mean else None

        def bind(array: Callable[[str], Array]) -> Iterable[Call]:
            dst = array(result)
            yield quiet(partial(reduce, array(source), out=dst.reshape(dims)))
            if count is not None:
                yield quiet(partial(np.divide, dst, count, dst))

        return bind
