"""Distances between the rows of two matrices. Loops over rows become this operator; it is not in the standard."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.op import AbstractOperator, OperatorError, Port, ShapeError, TensorType

__all__ = ["PairwiseDistances"]

Array = NDArray[Any]
_ROWS = 128
"""Rows of A in a block."""
_PRODUCTS, _LEAST, _MOST = 1 << 18, 1 << 13, 1 << 16
"""Products of a block, few enough for OpenBLAS to keep to one thread, as threads wait where cores are taken; its pairs, least and
most."""
_DIFFERENCES = 1 << 18
"""Differences that are made at a time."""
_NEAR = 1e-6
"""Share of |a|^2 + |b|^2 below which a squared distance is computed from differences: the sum of products has lost 9 digits."""


@dataclass(frozen=True, eq=False)
class PairwiseDistances(AbstractOperator):
    """Y [M, K] = the sums over features of |a - b| ** `power` for rows a of A [M, N] and b of B [K, N]; `power` is 1 or 2."""

    domain: ClassVar[str] = "dovetail"
    op_type: ClassVar[str] = "PairwiseDistances"
    stem: ClassVar[str] = "pairwise_distances"
    inputs: ClassVar[tuple[Port, ...]] = (Port("A"), Port("B"))
    attributes: ClassVar[Mapping[str, Any]] = MappingProxyType(dict.fromkeys(("power",)))
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y"),)

    power: int = 2

    def __post_init__(self) -> None:
        if self.power not in (1, 2):
            raise OperatorError(f"power is {self.power}; accepted: 1, 2")

    def infer(self, A: TensorType, B: TensorType) -> TensorType:
        """[M, K]. Raises `ShapeError`; one feature is as many as the other matrix has."""
        if A.rank != 2 or B.rank != 2 or len({1, A.dims[1], B.dims[1]}) > 2 or A.dtype is not B.dtype:
            raise ShapeError(f"input 'A' is {A}, 'B' {B}; accepted: [M, N], [K, N] of one type")
        return A.with_shape((A.dims[0], B.dims[0]))

    def reference(self, A: Array, B: Array) -> Array:
        """Squares of float32 by products in float64, where that is exact enough; all else by differences."""
        y = np.empty((len(A), len(B)), A.dtype)
        with np.errstate(all="ignore"):
            if self.power == 2 and A.dtype == np.float32 and A.shape[1] == B.shape[1]:
                self._products(A, B, y)
            else:
                self._differences(A[:, None], B, y)
        return y

    def _products(self, a: Array, b: Array, y: Array) -> None:
        """|a|^2 - 2 ab + |b|^2, block by block. Rows that are near each other lose digits, and infinities give NaN."""
        wide = [x.astype(np.float64) for x in (a, b)]
        size = [np.einsum("mn,mn->m", x, x) for x in wide]
        rows = min(len(a), _ROWS)
        step = max(1, min(max(_PRODUCTS // max(1, a.shape[1]), _LEAST), _MOST) // max(1, rows))
        for m, k in product(range(0, len(a), _ROWS), range(0, len(b), step)):
            left, right = slice(m, m + _ROWS), slice(k, k + step)
            total = size[0][left, None] + size[1][right]
            squares = wide[0][left] @ wide[1][right].T
            squares *= -2
            squares += total
            y[left, right] = squares
            total *= _NEAR
            near = ~(squares >= total)
            if near.any():
                self._recompute(a[left], b[right], near, y[left, right])

    def _recompute(self, a: Array, b: Array, near: Array, y: Array) -> None:
        """The pairs `near` by differences."""
        row, column = np.nonzero(near)
        step = max(1, _DIFFERENCES // max(1, a.shape[1]))
        for start in range(0, row.size, step):
            m, k = row[start : start + step], column[start : start + step]
            found = np.empty(m.size, y.dtype)
            self._differences(a[m], b[k], found)
            y[m, k] = found

    def _differences(self, a: Array, b: Array, y: Array) -> None:
        """The sums of the last axis of a - b, which are broadcast to the shape of y and features."""
        step = max(1, _DIFFERENCES // max(1, b.size))
        for start in range(0, len(y), step):
            apart = a[start : start + step] - (b if a.ndim > b.ndim else b[start : start + step])
            if self.power == 2:
                apart *= apart
            else:
                np.abs(apart, out=apart)
            apart.sum(axis=-1, out=y[start : start + step])
