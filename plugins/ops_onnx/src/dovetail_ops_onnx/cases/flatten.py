"""Cases of Flatten: the same elements in the same order."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.flatten import Flatten


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every axis from both ends, a vector, a scalar, batch 0."""
    x = rng.standard_normal((2, 3, 5)).astype(np.float32)
    for axis, rows, columns in [(0, 1, 30), (1, 2, 15), (2, 6, 5), (3, 30, 1), (-1, 6, 5), (-2, 2, 15), (-3, 1, 30)]:
        yield Case(f"axis_{axis}", Flatten(axis=axis), (x,), (x.reshape(rows, columns),))
    yield Case("default", Flatten(), (x,), (x.reshape(2, 15),))
    yield Case("vector", Flatten(), (x[0, 0],), (x[0, 0].reshape(5, 1),))
    yield Case("scalar", Flatten(axis=0), (np.array(3),), (np.array([[3]]),))
    yield Case("batch_0", Flatten(), (x[:0],), (np.zeros((0, 15), np.float32),))
