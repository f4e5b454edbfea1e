"""Shared by Softmax and LogSoftmax: the view as [outer, n, inner], and the shifted exponentials."""

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from dovetail.device import Refusal, TensorType, TypedNode
from dovetail_cpu_numpy.kernel import NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.launch import Array, Launch, into
from dovetail_ops_onnx.log_softmax import LogSoftmax, LogSoftmax_1
from dovetail_ops_onnx.softmax import Softmax, Softmax_1

__all__ = ["SoftmaxKernel", "add_along", "are_usual", "shifted"]

_LEAST, _MOST = 2.0**-20, 2.0**100
"""Sums of exponentials between which these need no shift: none is infinite, and those that are 0 are below 2^-86 of the sum."""


class SoftmaxKernel(NumpyKernel):
    """Base: accepts float32 and float64, writes into the input's memory where it may."""

    name = "exp"

    def refuse(self, node: TypedNode) -> Refusal | None:
        return refuse_dtypes(node.inputs)

    def in_place(self, node: TypedNode) -> Sequence[int]:
        return (0,)

    def rows(self, node: TypedNode) -> tuple[int, int, int]:
        """The input's shape as [outer, n, inner], n being what is normalized."""
        op, dims = node.op, node.outputs[0].dims
        assert isinstance(op, Softmax | Softmax_1 | LogSoftmax | LogSoftmax_1)
        axis = op.axis % len(dims) if dims else 0
        end = axis + 1 if isinstance(op, Softmax | LogSoftmax) else len(dims)
        return math.prod(dims[:axis]), math.prod(dims[axis:end]), math.prod(dims[end:])

    def row_type(self, node: TypedNode) -> TensorType:
        """The type of one number for each row."""
        outer, _, inner = self.rows(node)
        return node.outputs[0].with_shape((outer, 1, inner))


def are_usual(sums: Array) -> bool:
    """Whether exponentials with these sums were right without the subtraction of the greatest number of each row.

    That subtraction and the search for the number take a third of the time, and round; without them nothing is rounded before
    the exponential. Sums of rows that are all masked, too large or NaN are not usual.
    """
    return bool(sums.min() > _LEAST and sums.max() < _MOST)


def add_along(src: Array, dst: Array) -> Launch:
    """dst [outer, 1, inner] = the sum of src [outer, n, inner]."""
    return partial(np.add.reduce, src, 1, None, dst, keepdims=True)


def shifted(src: Array, peak: Array, dst: Array) -> Iterator[Launch]:
    """dst = src - max(src), with the maximum in `peak`."""
    yield partial(np.maximum.reduce, src, 1, None, peak, keepdims=True)
    yield into(np.subtract, src, peak, out=dst)
