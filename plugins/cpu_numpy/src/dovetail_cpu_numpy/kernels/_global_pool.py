"""Pooling over all spatial axes: a reduction of [N * C, elements]."""

import math
from collections.abc import Iterable
from functools import partial

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.launch import Launch, constant, into

__all__ = ["GlobalPool"]


class GlobalPool(NumpyKernel):
    """dst [N, C, 1, ...] = ufunc over the elements of each channel, divided by their number for a mean."""

    name = "ufunc_reduce"

    def __init__(self, ufunc: np.ufunc, *, mean: bool = False) -> None:
        self._ufunc = ufunc
        self._mean = mean

    def refuse(self, node: TypedNode) -> Refusal | None:
        if self._ufunc.identity is None and _elements(node) == 0:
            return Refusal(Reason.SHAPE, "no elements to reduce, and no neutral one")
        return refuse_dtypes(node.inputs)

    def bind(self, call: Call) -> Iterable[Launch]:
        elements, dst = _elements(call.node), call.outputs[0].reshape(-1)
        yield partial(self._ufunc.reduce, call.input(0).reshape(dst.size, elements), 1, None, dst)
        if self._mean:
            yield into(np.divide, dst, constant(elements, dst), out=dst)


def _elements(node: TypedNode) -> int:
    src = node.inputs[0]
    assert src is not None
    return math.prod(src.dims[2:])
