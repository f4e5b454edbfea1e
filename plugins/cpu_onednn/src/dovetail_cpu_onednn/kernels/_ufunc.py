"""Elementwise operators that are one NumPy ufunc: oneDNN lacks them, has them for float32 only, or loses NaN in them."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from dovetail.device import BYXF, PLAIN, Accepted, DType, LayerConfig, Layout, Reason, Refusal, TensorType, TypedNode
from dovetail.op import INTEGERS
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel, number, quiet

__all__ = ["BOOL", "FLOATS", "NUMBERS", "ArithmeticKernel", "UfuncKernel"]

NUMBERS = INTEGERS | {DType.FLOAT32, DType.FLOAT64}
"""Data types in which NumPy computes without conversion; integers wrap."""

BOOL = frozenset({DType.BOOL})

FLOATS = frozenset({DType.FLOAT32, DType.FLOAT64})


class UfuncKernel(PythonKernel):
    """dst = ufunc(input 0, input 1, ...), folded from the left; inputs have a data type in `accepted`, and any shapes."""

    name = "ufunc"
    binds_quickly = True

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

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        """Plain; if the inputs have the result's shape or one number, also with channels last."""
        plain, result = LayerConfig.uniform(node, PLAIN), node.outputs[0]
        given = [t for t in node.inputs if t is not None]
        if not BYXF.fits(result.rank) or any(t.dims != result.dims and t.size != 1 for t in given):
            return (plain,)

        def side(types: Sequence[TensorType | None]) -> tuple[Layout, ...]:
            return tuple(BYXF if t is not None and t.dims == result.dims else PLAIN for t in types)

        return plain, LayerConfig(side(node.inputs), side(node.outputs))

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
    """A ufunc that oneDNN's binary primitive has for float32: for other data types, operands that are both broadcast, as in outer
    products, which the primitive does not take, and for a single number.

    That takes Python 0.15 us, NumPy 0.4 and a primitive 3; the scales of dynamic quantization are such numbers.
    """

    def __init__(self, ufunc: np.ufunc, function: Callable[[float, float], float]) -> None:
        super().__init__(ufunc)
        self._function = function

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        result = node.outputs[0]
        is_one_whole = any(t is not None and t.dims == result.dims for t in node.inputs)
        if result.dtype is DType.FLOAT32 and result.size != 1 and is_one_whole:
            return Refusal(Reason.DTYPE, "float32; accepted: other numbers, one of float32, or operands that are all broadcast")
        return super().supports(node)

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        values = [array(name) for name in (*node.node.inputs, *node.node.outputs)]
        if len(values) != 3 or any(v.dtype != np.float32 or v.size != 1 for v in values):
            return super().bind(node, array)
        one, other, dst = map(number, values)
        function = self._function

        def run() -> None:
            # In float64, rounded to float32 when it is stored: a sum, difference or product of two is the same as in float32.
            dst[0] = function(one[0], other[0])

        return (run,)
