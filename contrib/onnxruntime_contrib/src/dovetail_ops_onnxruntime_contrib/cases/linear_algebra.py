"""Cases of Inverse: triangles, whose inverses are known."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.linear_algebra import Inverse


def inverse(rng: np.random.Generator) -> Iterator[Case]:
    """Two matrices, none, one in float64."""
    x = np.array([[[2, 0], [0, 4]], [[1, 3], [0, 1]]], np.float32)
    want = np.array([[[0.5, 0], [0, 0.25]], [[1, -3], [0, 1]]], np.float32)
    yield Case("two", Inverse(), (x,), (want,))
    yield Case("none", Inverse(), (x[:0],), (want[:0],))
    yield Case("float64", Inverse(), (x[1].astype(np.float64),), (want[1].astype(np.float64),))
