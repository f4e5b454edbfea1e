"""Cases of Inverse and CDist: triangles, whose inverses and sides are known."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.linear_algebra import CDist, Inverse


def inverse(rng: np.random.Generator) -> Iterator[Case]:
    """Two matrices, none, one in float64."""
    x = np.array([[[2, 0], [0, 4]], [[1, 3], [0, 1]]], np.float32)
    want = np.array([[[0.5, 0], [0, 0.25]], [[1, -3], [0, 1]]], np.float32)
    yield Case("two", Inverse(), (x,), (want,))
    yield Case("none", Inverse(), (x[:0],), (want[:0],))
    yield Case("float64", Inverse(), (x[1].astype(np.float64),), (want[1].astype(np.float64),))


def c_dist(rng: np.random.Generator) -> Iterator[Case]:
    """A right-angled triangle far from the origin, no rows."""
    a, b = np.array([[1000, 1000], [1003, 1000]], np.float32), np.array([[1000, 1000], [1003, 1004], [1000, 1000]], np.float32)
    want = np.array([[0, 5, 0], [3, 4, 3]], np.float32)
    yield Case("euclidean", CDist(metric="euclidean"), (a, b), (want,))
    yield Case("squares", CDist(), (a.astype(np.float64), b.astype(np.float64)), (want.astype(np.float64) ** 2,))
    yield Case("none", CDist(), (a[:0], b), (want[:0],))
