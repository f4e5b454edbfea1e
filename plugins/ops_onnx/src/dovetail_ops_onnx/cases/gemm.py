"""Cases of Gemm: sums of products in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.gemm import Gemm


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Transposes, alpha and beta, every form of C, odd sizes, empty axes, integers, float16 and float64."""
    a, b = _random(rng, (3, 5), (5, 7))
    c = rng.standard_normal((3, 7)).astype(np.float32)
    yield Case("no_c", Gemm(), (a, b), (_product(a, b),))
    yield Case("matrix_c", Gemm(alpha=0.5, beta=2.0), (a, b, c), (_product(a, b, c, 0.5, 2.0),))
    for name, part in (("row", c[0]), ("one_row", c[:1]), ("column", c[:, :1]), ("scalar", np.array(c[0, 0]))):
        yield Case(f"c_{name}", Gemm(), (a, b, part), (_product(a, b, part),))
    for left in (False, True):
        for right in (False, True):
            inputs = (a.T.copy() if left else a, b.T.copy() if right else b, c[0])
            yield Case(f"trans_{left:d}{right:d}", Gemm(transA=left, transB=right), inputs, (_product(a, b, c[0]),))
    a, b = _random(rng, (33, 65), (65, 17))
    yield Case("odd_sizes", Gemm(), (a, b), (_product(a, b),), atol=1e-5)
    yield Case("batch_0", Gemm(), (a[:0], b), (np.zeros((0, 17), np.float32),))
    yield Case("nothing_to_sum", Gemm(), (a[:, :0], b[:0], b[:1]), (np.repeat(b[:1], 33, axis=0),))
    lost = np.array([np.nan, np.inf, -np.inf], np.float32)
    yield Case("beta_0_does_not_read_c", Gemm(beta=0.0), (a[:2], b[:, :3], lost), (_product(a[:2], b[:, :3]),), atol=1e-5)
    want = _product(a[:2], b[:, :3])
    yield Case("beta_0_constant_c", Gemm(beta=0.0), (a[:2], b[:, :3], lost), (want,), constants=(2,), atol=1e-5)
    n, m = (rng.integers(-9, 9, shape).astype(np.int32) for shape in ((2, 3), (3, 4)))
    yield Case("int32", Gemm(), (n, m), (_product(n, m),))
    for dtype, rtol in ((np.float16, 3e-3), (np.float64, 1e-12)):
        a, b = (x.astype(dtype) for x in _random(rng, (4, 9), (9, 3)))
        yield Case(np.dtype(dtype).name, Gemm(alpha=1.5), (a, b), (_product(a, b, alpha=1.5),), rtol=rtol, atol=rtol)


def _random(rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[NDArray[Any]]:
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def _product(a: NDArray[Any], b: NDArray[Any], c: Any = 0.0, alpha: float = 1.0, beta: float = 1.0) -> NDArray[Any]:
    columns = [[float((row * column).sum()) for column in b.T.astype(np.float64)] for row in a.astype(np.float64)]
    y: NDArray[Any] = (alpha * np.array(columns) + beta * np.asarray(c, np.float64)).astype(a.dtype)
    return y
