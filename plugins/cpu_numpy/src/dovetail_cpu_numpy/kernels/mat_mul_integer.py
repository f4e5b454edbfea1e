"""MatMulInteger with constant weights: exact products of BLAS, in pieces whose sums float32 holds."""

import math
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.launch import Array, Launch, Spec, copy

EXACT = 1 << 24
"""Integers up to here, and all sums of them on the way, are numbers of float32."""

LARGEST = 255
"""The largest absolute difference between an 8-bit number and its zero point."""


@dataclass(frozen=True, slots=True)
class _Weights:
    """The right operand without its zero point, as float32 [K, N], and how many of its rows are summed at once."""

    matrix: Array
    rows: int


class ExactProduct(NumpyKernel):
    """One matrix of weights; the zero point of the left operand is one number, known or not."""

    name = "exact float32"

    def refuse(self, node: TypedNode) -> Refusal | None:
        b, (zero_a, zero_b) = node.given(1), (*node.inputs[2:], None, None)[:2]
        if b.value is None or (zero_b is not None and zero_b.value is None):
            return Refusal(Reason.DYNAMIC, "weights or their zero points that are not constant")
        if b.rank < 2 or math.prod(b.dims[:-2]) != 1 or (zero_a is not None and zero_a.size != 1):
            return Refusal(Reason.SHAPE, "several matrices of weights, or zero points of rows")
        if not node.given(0).size or not b.size:
            return Refusal(Reason.SHAPE, "no elements")
        return None

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        k, n = node.given(1).dims[-2:]
        rows, single = node.outputs[0].size // n, np.dtype(np.float32)
        return ((rows, k), single), ((rows, n), single), ((rows, n), np.dtype(np.int32)), ((), single)

    def prepare(self, node: TypedNode) -> _Weights:
        b, zero = node.given(1).value, node.inputs[3] if len(node.inputs) > 3 else None
        assert b is not None
        matrix = b.astype(np.float32)
        if zero is not None and zero.value is not None:
            matrix -= zero.value.astype(np.float32)
        largest = max(1, int(np.abs(matrix).max()))
        return _Weights(matrix.reshape(b.shape[-2:]), max(1, EXACT // (LARGEST * largest)))

    def bind(self, call: Call) -> Iterable[Launch]:
        left, product, whole, shift = call.scratch
        weights: _Weights = call.state
        yield copy(left, call.input(0).reshape(left.shape))
        zero = call.inputs[2] if len(call.inputs) > 2 else None
        if zero is not None:
            yield copy(shift, zero.reshape(()))
            yield partial(np.subtract, left, shift, left)
        dst = call.outputs[0].reshape(whole.shape)
        for first in range(0, left.shape[1], weights.rows):
            piece = slice(first, first + weights.rows)
            yield partial(np.matmul, left[:, piece], weights.matrix[piece], product)
            yield partial(np.copyto, whole if first else dst, product, casting="unsafe")
            if first:
                yield partial(np.add, dst, whole, dst)


KERNELS = (ExactProduct(),)
