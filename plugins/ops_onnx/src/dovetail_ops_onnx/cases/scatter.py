"""Cases of Scatter: by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.scatter import Scatter


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Both axes, negative indices."""
    data = np.zeros((3, 3), np.float32)
    index, updates = np.array([[1, 0, 2], [0, 2, -2]]), np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    yield Case("rows", Scatter(), (data, index, updates), (np.array([[4, 2, 0], [1, 0, 6], [0, 5, 3]], np.float32),))
    want = np.array([[1, 0, 3, 0, 2]], np.float32)
    row = (np.zeros((1, 5), np.float32), np.array([[0, 2, -1]]), np.array([[1, 3, 2]], np.float32))
    yield Case("columns", Scatter(axis=1), row, (want,))
