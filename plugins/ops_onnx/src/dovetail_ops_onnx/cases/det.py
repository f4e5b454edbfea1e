"""Cases of Det: the sum over permutations, in float64."""

import itertools
import math
from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.det import Det


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Sizes 1 to 4, leading dimensions, a singular matrix, float64, batch 0."""
    for size in (1, 2, 3, 4):
        x = rng.standard_normal((2, 3, size, size)).astype(np.float32)
        want = np.array([_det(m) for m in x.reshape(-1, size, size)], np.float32).reshape(2, 3)
        yield Case(f"size_{size}", Det(), (x,), (want,), rtol=1e-4, atol=1e-5)
    wide = rng.standard_normal((3, 3))
    yield Case("float64", Det(), (wide,), (np.array(_det(wide)),), rtol=1e-12, atol=1e-12)
    yield Case("singular", Det(), (np.ones((2, 2), np.float32),), (np.array(0, np.float32),))
    yield Case("batch_0", Det(), (np.zeros((0, 2, 2), np.float32),), (np.zeros(0, np.float32),))


def _det(matrix: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> float:
    rows = matrix.astype(np.float64)
    total = 0.0
    for order in itertools.permutations(range(len(rows))):
        inversions = sum(a > b for a, b in itertools.combinations(order, 2))
        total += (-1) ** inversions * math.prod(rows[i, j] for i, j in enumerate(order))
    return total
