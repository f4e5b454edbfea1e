"""Elementwise operators that are one NumPy ufunc, for every data type in which it does what ONNX asks, and every broadcast."""

from collections.abc import Iterable, Sequence

import numpy as np

from dovetail.device import DType, Refusal, TypedNode
from dovetail.op import INTEGERS
from dovetail_cpu_numpy.kernel import BLAS, Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.launch import Launch, copy, into

__all__ = ["BOOL", "NUMBERS", "UfuncKernel"]

NUMBERS = BLAS | INTEGERS
"""Data types in which NumPy computes without conversion; integers wrap."""

BOOL = frozenset({DType.BOOL})


class UfuncKernel(NumpyKernel):
    """dst = ufunc(input 0, input 1, ...), folded from the left; inputs have a data type in `accepted`."""

    name = "ufunc"
    elementwise = True
    binds_quickly = True

    def __init__(self, ufunc: np.ufunc, accepted: frozenset[DType] = NUMBERS) -> None:
        self._ufunc = ufunc
        self._accepted = accepted

    def refuse(self, node: TypedNode) -> Refusal | None:
        return refuse_dtypes(node.inputs, self._accepted)

    def in_place(self, node: TypedNode) -> Sequence[int]:
        # Inputs after the second are read when the result has been written already.
        return range(min(2, len(node.inputs)))

    def bind(self, call: Call) -> Iterable[Launch]:
        (dst,) = call.outputs
        first, *rest = [call.input(index) for index in range(len(call.inputs))]
        if self._ufunc.nin == 1:
            yield into(self._ufunc, first, out=dst)
        elif not rest:
            yield copy(dst, first)
        for other in rest:
            yield into(self._ufunc, first, other, out=dst)
            first = dst
