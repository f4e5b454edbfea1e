"""Cases of MatMul: sums of products in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.mat_mul import MatMul


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Matrices, batches that broadcast, vectors on either side, odd sizes, empty axes, integers, float16 and float64."""
    shapes = (
        ((3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (5, 4, 2)),
        ((2, 3, 3, 4), (4, 5)),
        ((3, 4), (2, 4, 1)),
        ((33, 65), (65, 17)),
        ((1, 12, 7, 16), (1, 12, 16, 7)),
    )
    for left, right in shapes:
        a, b = _random(rng, left, right)
        yield Case(f"{_name(left)}_by_{_name(right)}", MatMul(), (a, b), (_product(a, b),), atol=1e-5)
    a, b, v, u = _random(rng, (2, 3, 4), (2, 4, 5), (4,), (4,))
    yield Case("vector_left", MatMul(), (v, b), (_product(v[None], b)[:, 0],))
    yield Case("vector_right", MatMul(), (a, v), (_product(a, v[:, None])[..., 0],))
    yield Case("two_vectors", MatMul(), (v, u), (_product(v[None], u[:, None])[0, 0],), atol=1e-5)
    yield Case("batch_0", MatMul(), (a[:0], b[:0]), (np.zeros((0, 3, 5), np.float32),))
    yield Case("nothing_to_sum", MatMul(), (a[..., :0], b[:, :0]), (np.zeros((2, 3, 5), np.float32),))
    n, m = (rng.integers(-9, 9, shape).astype(np.int64) for shape in ((2, 3), (3, 4)))
    yield Case("int64", MatMul(), (n, m), (_product(n, m),))
    for dtype, rtol in ((np.float16, 3e-3), (np.float64, 1e-12)):
        a, b = (x.astype(dtype) for x in _random(rng, (4, 9), (9, 3)))
        yield Case(np.dtype(dtype).name, MatMul(), (a, b), (_product(a, b),), rtol=rtol, atol=rtol)


def _name(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _random(rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[NDArray[Any]]:
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def _product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    left, right = a.astype(np.float64)[..., :, :, None], b.astype(np.float64)[..., None, :, :]
    y: NDArray[Any] = np.asarray((left * right).sum(axis=-2)).astype(a.dtype)
    return y
