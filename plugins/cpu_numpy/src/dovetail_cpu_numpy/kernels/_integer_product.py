"""Products of 8-bit matrices with constant weights: exact products of BLAS, in pieces whose sums float32 holds."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import ClassVar

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import Reason, Refusal, TensorType, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.kernels._quantized import EIGHT_BITS, EXACT, Reach
from dovetail_cpu_numpy.launch import Array, Launch, Spec, copy
from dovetail_cpu_numpy.shared import Shared

__all__ = ["ProductKernel"]


@dataclass(frozen=True, slots=True)
class _Weights:
    """The right operand without its zero point, as float32 [K, N], and the rows that are summed at once."""

    matrix: Array
    pieces: Sequence[slice]


class ProductKernel(NumpyKernel):
    """Base: one matrix of weights; the zero point of the left operand is one number, known or not.

    `left` and `right` are the indices of the operands and of their zero points.
    """

    name = "exact float32"
    left: ClassVar[tuple[int, int]]
    right: ClassVar[tuple[int, int]]

    def refuse(self, node: TypedNode) -> Refusal | None:
        (a, zero_a), (b, zero_b) = self._operands(node)
        if b.value is None or (zero_b is not None and zero_b.value is None):
            return Refusal(Reason.DYNAMIC, "weights or their zero points that are not constant")
        if b.rank < 2 or math.prod(b.dims[:-2]) != 1 or (zero_a is not None and zero_a.size != 1):
            return Refusal(Reason.SHAPE, "several matrices of weights, or zero points of rows")
        if not a.size or not b.size:
            return Refusal(Reason.SHAPE, "no elements")
        return refuse_dtypes((a, b), EIGHT_BITS)

    def _operands(self, node: TypedNode) -> Sequence[tuple[TensorType, TensorType | None]]:
        """Both, each with its zero point."""
        return [(node.given(index), node.optional(zero)) for index, zero in (self.left, self.right)]

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        k, n = node.given(self.right[0]).dims[-2:]
        rows, single = node.outputs[0].size // n, np.dtype(np.float32)
        return ((rows, k), single), ((rows, n), single), ((), single)

    def prepare(self, node: TypedNode) -> Shared[_Weights]:
        """The weights, which become float32 once for all plans."""
        (a, zero_a), (b, zero_b) = self._operands(node)
        assert b.value is not None
        zeros = None if zero_b is None else zero_b.value
        sources, reach = [b.value, *([] if zeros is None else [zeros])], Reach.of_point(a.dtype, zero_a)
        return Shared.of(sources, partial(_weights, b.value, zeros, reach), "product", reach)

    def products(self, call: Call) -> Iterator[tuple[Sequence[Launch], Array]]:
        """Launches that compute the sums of each piece, and the array in which they are: the same for all."""
        left, product, shift = call.scratch[:3]
        weights: _Weights = call.state.value
        first = [copy(left, call.input(self.left[0]).reshape(left.shape))]
        zero = call.optional(self.left[1])
        if zero is not None:
            first += [copy(shift, zero.reshape(())), partial(np.subtract, left, shift, left)]
        for piece in weights.pieces:
            yield (*first, partial(np.matmul, left[:, piece], weights.matrix[piece], product)), product
            first = []


def _weights(weights: Array, zeros: Array | None, reach: Reach) -> _Weights:
    matrix = weights.astype(np.float32)
    if zeros is not None:
        matrix -= zeros.astype(np.float32)
    matrix = matrix.reshape(weights.shape[-2:])
    return _Weights(matrix, _pieces(matrix, reach))


def _pieces(weights: Array, reach: Reach) -> Sequence[slice]:
    """Equal parts of the rows of the weights, as few as can be, whose sums float32 holds."""
    terms, count = len(weights), 0
    while True:
        count += 1
        cuts = [terms * index // count for index in range(count + 1)]
        found = [slice(*cut) for cut in pairwise(cuts)]
        if count == terms or all(reach.sums(weights[piece]) <= EXACT for piece in found):
            return found
