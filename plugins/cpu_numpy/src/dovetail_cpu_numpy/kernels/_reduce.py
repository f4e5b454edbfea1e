"""Reductions that are one NumPy ufunc's `reduce`."""

import math
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import BLAS, Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.launch import Launch, constant, into

if TYPE_CHECKING:  # few models have them all
    from dovetail_ops_onnx.reduce_max import ReduceMax
    from dovetail_ops_onnx.reduce_mean import ReduceMean
    from dovetail_ops_onnx.reduce_min import ReduceMin
    from dovetail_ops_onnx.reduce_prod import ReduceProd
    from dovetail_ops_onnx.reduce_sum import ReduceSum

    Reduction = ReduceMax | ReduceMean | ReduceMin | ReduceProd | ReduceSum

__all__ = ["REDUCIBLE", "UfuncReduce"]

REDUCIBLE = BLAS | {DType.INT32, DType.INT64, DType.UINT32, DType.UINT64}


class UfuncReduce(NumpyKernel):
    """dst = ufunc over the axes, divided by their number of elements for a mean. Integers wrap."""

    name = "ufunc_reduce"
    binds_quickly = True

    def __init__(self, ufunc: np.ufunc, accepted: frozenset[DType] = REDUCIBLE, *, mean: bool = False) -> None:
        self._ufunc = ufunc
        self._accepted = accepted
        self._mean = mean

    def refuse(self, node: TypedNode) -> Refusal | None:
        if any(given is not None and given.value is None for given in node.inputs[1:]):
            return Refusal(Reason.ATTRIBUTE, "axes that are not constant")
        if self._ufunc.identity is None and self._count(node) == 0:
            return Refusal(Reason.SHAPE, "no elements to reduce, and no neutral one")
        return refuse_dtypes(node.outputs, self._accepted)

    def bind(self, call: Call) -> Iterable[Launch]:
        (dst,), axes = call.outputs, self.axes(call.node)
        src = call.input(0)
        kept = dst.reshape([1 if a in axes else d for a, d in enumerate(src.shape)])
        reduction = self.reduction(call.node)
        lines = reduction.lines(call.node.given(0), axes)
        if lines is not None:
            yield reduction.lines_step(src.reshape(lines), dst.reshape(lines[0]))
            return
        yield partial(self._ufunc.reduce, src, axes, dst.dtype, kept, keepdims=True)
        if self._mean:
            yield into(np.divide, dst, constant(self._count(call.node), dst), out=dst)

    def reduction(self, node: TypedNode) -> "Reduction":
        """The reduction that the node is."""
        return cast("Reduction", node.op)

    def axes(self, node: TypedNode) -> tuple[int, ...]:
        """The axes that are reduced."""
        axes = node.optional(1)
        return self.reduction(node).reduced_axes(node.given(0).rank, None if axes is None else axes.value)

    def _count(self, node: TypedNode) -> int:
        """The number of elements that make one of the result."""
        return math.prod(node.given(0).dims[axis] for axis in self.axes(node))
