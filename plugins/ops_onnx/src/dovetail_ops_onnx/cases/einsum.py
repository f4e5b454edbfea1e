"""Cases of Einsum: by the matrix products, sums and diagonals that the equations mean, in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.einsum import Einsum


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Products, batches, sums, diagonals, ellipses, no arrow, spaces, three inputs, batch 0, integers, float16."""
    a, b, c = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (4, 5), (5, 2)))
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    product = (wide_a[:, :, None] * wide_b[None]).sum(axis=1)
    yield Case("matrix_product", Einsum(equation="ij,jk->ik"), (a, b), (_as(product, a),))
    yield Case("no_arrow_and_spaces", Einsum(equation=" ij , jk "), (a, b), (_as(product, a),))
    yield Case("transposed_output", Einsum(equation="ij,jk->ki"), (a, b), (_as(product.T, a),))
    yield Case("sum_of_everything", Einsum(equation="ij->"), (a,), (_as(np.array(wide_a.sum()), a),))
    yield Case("sum_of_rows", Einsum(equation="ij->i"), (a,), (_as(wide_a.sum(axis=1), a),))
    yield Case("sorted_labels", Einsum(equation="ba"), (a,), (a.T.copy(),))
    square = rng.standard_normal((4, 4)).astype(np.float32)
    yield Case("diagonal", Einsum(equation="ii->i"), (square,), (np.array([square[i, i] for i in range(4)]),))
    yield Case("outer", Einsum(equation="i,j->ij"), (a[0], b[0]), (_as(wide_a[0][:, None] * wide_b[0], a),))
    three = (product[:, :, None] * c.astype(np.float64)[None]).sum(axis=1)
    yield Case("three_inputs", Einsum(equation="ij,jk,kl->il"), (a, b, c), (_as(three, a),))
    q, k = (rng.standard_normal((2, 3, 4, 5)).astype(np.float32) for _ in range(2))
    scores = (q.astype(np.float64)[:, :, :, None] * k.astype(np.float64)[:, :, None]).sum(axis=-1)
    yield Case("attention", Einsum(equation="bhid,bhjd->bhij"), (q, k), (_as(scores, q),))
    yield Case("ellipsis", Einsum(equation="...id,...jd->...ij"), (q, k), (_as(scores, q),))
    mixed = (q.astype(np.float64)[..., :, :, None] * wide_b.T[:, :4]).sum(axis=-2)
    yield Case("ellipsis_broadcast", Einsum(equation="...ij,jk->...ik"), (q, b.T[:, :4].copy()), (_as(mixed, q),))
    yield Case("batch_0", Einsum(equation="ij,jk->ik"), (a[:0], b), (np.zeros((0, 5), np.float32),))
    n = rng.integers(-9, 9, (3, 4))
    yield Case("int64", Einsum(equation="ij,ij->i"), (n, n), (np.array([sum(int(v) ** 2 for v in row) for row in n]),))
    half = a.astype(np.float16), b.astype(np.float16)
    want = (half[0].astype(np.float64)[:, :, None] * half[1].astype(np.float64)[None]).sum(axis=1)
    yield Case("float16", Einsum(equation="ij,jk->ik"), half, (_as(want, half[0]),), rtol=2e-3, atol=2e-3)


def _as(y: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
    return y.astype(like.dtype)
