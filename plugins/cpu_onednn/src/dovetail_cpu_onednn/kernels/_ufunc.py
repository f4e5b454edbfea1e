"""Elementwise operators that are one NumPy ufunc: those that oneDNN has not, has for float32 alone, or loses NaN in."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from dovetail.device import Accepted, DType, Reason, Refusal, TypedNode
from dovetail.op import INTEGERS
from dovetail_cpu_onednn.bound import Array, BoundKernel, Call, quiet

__all__ = ["BOOL", "FLOATS", "NUMBERS", "ArithmeticKernel", "UfuncKernel"]

NUMBERS = INTEGERS | {DType.FLOAT32, DType.FLOAT64}
"""Data types with NumPy arithmetic of their own; integers wrap."""

BOOL = frozenset({DType.BOOL})

FLOATS = frozenset({DType.FLOAT32, DType.FLOAT64})


class UfuncKernel(BoundKernel):
    """dst = ufunc(input 0, input 1, ...), folded from the left; inputs have a data type in `accepted`, and any shapes."""

    name = "ufunc"

    def __init__(self, ufunc: np.ufunc, accepted: frozenset[DType] = NUMBERS) -> None:
        self._ufunc = ufunc
        self._accepted = accepted

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        if node.post_ops:
            return Refusal(Reason.POST_OP, "a ufunc takes none")
        wrong = [t for t in node.inputs if t is not None and t.dtype not in self._accepted]
        if wrong or len(node.inputs) < self._ufunc.nin:
            return Refusal(Reason.DTYPE, f"{wrong[0].dtype if wrong else 'one input'}; accepted: numbers")
        return Accepted(self.name)

    def in_place(self, node: TypedNode) -> Sequence[str]:
        # Inputs after the second are read when the result has been written already.
        return node.node.inputs[:2]

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        dst = array(node.node.outputs[0])
        first, *rest = [array(name) for name in node.node.inputs]
        if self._ufunc.nin == 1:
            yield quiet(partial(self._ufunc, first, out=dst))
        for other in rest:
            yield quiet(partial(self._ufunc, first, other, out=dst))
            first = dst


class ArithmeticKernel(UfuncKernel):
    """A ufunc that oneDNN's binary primitive has for float32: for other data types, and for a single number.

    That takes NumPy 0.4 us and a primitive 3 us; the scales of dynamic quantization are such numbers.
    """

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        if node.outputs[0].dtype is DType.FLOAT32 and node.outputs[0].size != 1:
            return Refusal(Reason.DTYPE, "float32; accepted: other numbers, or one of float32")
        return super().supports(node)
