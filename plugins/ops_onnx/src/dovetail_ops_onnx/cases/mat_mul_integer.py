"""Cases of MatMulInteger: products of Python's integers."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.mat_mul_integer import MatMulInteger

__all__ = ["cases", "whole_product"]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Each pair of types, zero points at both ends, by row and by column, batches, vectors, batch 0."""
    for at in (np.uint8, np.int8):
        for bt in (np.uint8, np.int8):
            a, b = _any(rng, (3, 17), at), _any(rng, (17, 5), bt)
            za, zb = np.array(np.iinfo(at).max, at), np.array(np.iinfo(bt).min, bt)
            name = f"{np.dtype(at).name}_{np.dtype(bt).name}"
            yield Case(name, MatMulInteger(), (a, b, za, zb), (whole_product(a, b, za, zb),))
    a, b = _any(rng, (2, 3, 7), np.uint8), _any(rng, (2, 7, 4), np.int8)
    yield Case("batch", MatMulInteger(), (a, b), (whole_product(a, b),))
    yield Case("batch_on_the_left", MatMulInteger(), (a, b[0]), (whole_product(a, b[0]),))
    rows, columns = _any(rng, (3,), np.uint8), _any(rng, (4,), np.int8)
    want = whole_product(a, b, rows.reshape(3, 1), columns)
    yield Case("by_row_and_column", MatMulInteger(), (a, b, rows, columns), (want,))
    rows, columns = _any(rng, (2, 3, 1), np.uint8), _any(rng, (2, 1, 4), np.int8)
    yield Case("by_row_of_each_batch", MatMulInteger(), (a, b, rows, columns), (whole_product(a, b, rows, columns),))
    yield Case("vector", MatMulInteger(), (a[0, 0], b[0]), (whole_product(a[0, :1], b[0])[0],))
    yield Case("batch_0", MatMulInteger(), (a[:0], b[:0]), (np.zeros((0, 3, 4), np.int32),))


def _any(rng: np.random.Generator, shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def whole_product(a: NDArray[Any], b: NDArray[Any], za: NDArray[Any] | int = 0, zb: NDArray[Any] | int = 0) -> NDArray[Any]:
    """int32 sums of the products of (a - za) [..., M, K] and (b - zb) [..., K, N]."""
    left, right = a.astype(np.int64) - za, b.astype(np.int64) - zb
    return np.asarray((left[..., :, :, None] * right[..., None, :, :]).sum(-2)).astype(np.int32)
