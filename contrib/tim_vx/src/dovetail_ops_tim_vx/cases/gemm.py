"""Cases of Gemm: the golden numbers of TIM-VX's custom_op_test, and sums of products in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType
from dovetail.testing import Case
from dovetail_ops_tim_vx.gemm import Gemm

Array = NDArray[Any]

A = np.array([[1, 2, 3, 4, 5, 6], [-1, -2, -3, -4, -5, -6]], np.float32)
B = np.array([[6, 5], [4, 3], [2, 1], [-6, -5], [-4, -3], [-2, -1]], np.float32)
Y = np.array([[-36, -27], [36, 27]], np.float32)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """The golden product, every transpose, batches in one or both inputs, every float type, nothing to add up, batch 0."""
    yield Case("golden", Gemm(), (A, B), (Y,))
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 7), (7, 5)))
    for trans_a in (False, True):
        for trans_b in (False, True):
            given = np.ascontiguousarray(a.T) if trans_a else a, np.ascontiguousarray(b.T) if trans_b else b
            yield Case(f"trans_{trans_a:d}{trans_b:d}", Gemm(trans_a=trans_a, trans_b=trans_b), given, (_product(a, b),))
    left, right = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 2, 3, 7), (2, 2, 7, 5)))
    yield Case("batch_both", Gemm(), (left, right), (_product(left, right),))
    yield Case("batch_a", Gemm(), (left, b), (_product(left, b),))
    yield Case("batch_b", Gemm(trans_a=True), (np.ascontiguousarray(a.T), right), (_product(a, right),))
    for dtype, tolerance in ((DType.FLOAT16, 4e-3), (DType.BFLOAT16, 3e-2), (DType.FLOAT64, 1e-12)):
        pair = a.astype(dtype.numpy), b.astype(dtype.numpy)
        yield Case(dtype.value, Gemm(), pair, (_product(*pair).astype(dtype.numpy),), rtol=tolerance, atol=tolerance)
    yield Case("nothing_to_add", Gemm(), (a[:, :0], b[:0]), (np.zeros((3, 5), np.float32),))
    yield Case("batch_0", Gemm(), (left[:0], b), (np.zeros((0, 2, 3, 5), np.float32),))


def _product(a: Array, b: Array) -> Array:
    y = np.einsum("...mk,...kn->...mn", a.astype(np.float64), b.astype(np.float64))
    return np.asarray(y if a.dtype == np.float64 else y.astype(np.float32))
