"""Cases of LRN: element by element in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.lrn import LRN


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Odd and even sizes, more than the channels there are, other parameters, rank 3, batch 0, float16."""
    x = (rng.standard_normal((2, 7, 3, 2)) * 5).astype(np.float32)
    for size in (1, 3, 4, 15):
        yield Case(f"size_{size}", LRN(size=size), (x,), (_lrn(x, size),))
    op = LRN(size=3, alpha=0.02, beta=0.5, bias=2.0)
    yield Case("parameters", op, (x,), (_lrn(x, 3, 0.02, 0.5, 2.0),))
    many = (rng.standard_normal((2, 32, 3, 5)) * 5).astype(np.float32)
    for size in (3, 5):
        yield Case(f"many_channels_size_{size}", LRN(size=size, alpha=0.1), (many,), (_lrn(many, size, 0.1),))
    line = x[..., 0]
    yield Case("rank_3", LRN(size=5, alpha=0.1), (line,), (_lrn(line, 5, 0.1),))
    yield Case("batch_0", LRN(size=3), (x[:0],), (x[:0].copy(),))
    half = x.astype(np.float16)
    yield Case("float16", LRN(size=3, alpha=0.1), (half,), (_lrn(half, 3, 0.1),), rtol=2e-3, atol=1e-3)


def _lrn(x: NDArray[Any], size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> NDArray[Any]:
    wide, y = x.astype(np.float64), np.zeros(x.shape)
    for c in range(x.shape[1]):
        near = [i for i in range(x.shape[1]) if c - (size - 1) // 2 <= i <= c + size // 2]
        squares = sum(wide[:, i] ** 2 for i in near)
        y[:, c] = wide[:, c] / (bias + alpha / size * squares) ** beta
    return y.astype(x.dtype)
