"""Reductions that are one NumPy ufunc's `reduce`."""

import math
from collections.abc import Iterable
from functools import partial

import numpy as np

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import BLAS, Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.launch import Array, Launch, constant, into
from dovetail_ops_onnx.reduce_max import ReduceMax
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.reduce_min import ReduceMin
from dovetail_ops_onnx.reduce_prod import ReduceProd
from dovetail_ops_onnx.reduce_sum import ReduceSum

__all__ = ["REDUCIBLE", "UfuncReduce"]

FEW, SOME, TALL = 4, 12, 16
"""Elements of the last axis up to which columns are faster than rows: 8 us for 26,000 rows of two, which `reduce` sums in 314.

From `TALL` rows for each column on, also up to `SOME`: the maxima of 2,880 rows of 8 take 9 us, by `reduce` 146.
"""

REDUCIBLE = BLAS | {DType.INT32, DType.INT64, DType.UINT32, DType.UINT64}


class UfuncReduce(NumpyKernel):
    """dst = ufunc over the axes, divided by their number of elements for a mean. Integers wrap."""

    name = "ufunc_reduce"

    def __init__(self, ufunc: np.ufunc, accepted: frozenset[DType] = REDUCIBLE, *, mean: bool = False) -> None:
        self._ufunc = ufunc
        self._accepted = accepted
        self._mean = mean

    def refuse(self, node: TypedNode) -> Refusal | None:
        if any(given is not None and given.value is None for given in node.inputs[1:]):
            return Refusal(Reason.ATTRIBUTE, "axes that are not constant")
        if self._ufunc.identity is None and _count(node) == 0:
            return Refusal(Reason.SHAPE, "no elements to reduce, and no neutral one")
        return refuse_dtypes(node.outputs, self._accepted)

    def bind(self, call: Call) -> Iterable[Launch]:
        (dst,), axes = call.outputs, _axes(call.node)
        src = call.input(0)
        kept = dst.reshape([1 if a in axes else d for a, d in enumerate(src.shape)])
        if axes == (src.ndim - 1,) and _is_narrow(src.shape[-1], dst.size):
            yield from self._by_column(src, kept[..., 0])
        else:
            yield partial(self._ufunc.reduce, src, axes, dst.dtype, kept, keepdims=True)
        if self._mean:
            yield into(np.divide, dst, constant(_count(call.node), dst), out=dst)

    def _by_column(self, src: Array, dst: Array) -> Iterable[Launch]:
        """The ufunc over whole columns, one after the other."""
        first = src[..., 0]
        for column in range(1, src.shape[-1]):
            yield into(self._ufunc, first, src[..., column], out=dst)
            first = dst


def _is_narrow(columns: int, rows: int) -> bool:
    return 1 < columns <= FEW or (FEW < columns <= SOME and rows >= TALL * columns)


def _axes(node: TypedNode) -> tuple[int, ...]:
    op, (data, *rest) = node.op, node.inputs
    assert isinstance(op, ReduceMax | ReduceMean | ReduceMin | ReduceProd | ReduceSum)
    assert data is not None
    axes = rest[0] if rest else None
    return op.reduced_axes(data.rank, None if axes is None else axes.value)


def _count(node: TypedNode) -> int:
    """The number of elements that make one of the result."""
    data = node.inputs[0]
    assert data is not None
    return math.prod(data.dims[axis] for axis in _axes(node))
