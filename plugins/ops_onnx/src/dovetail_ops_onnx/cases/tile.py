"""Cases of Tile: element by element, modulo the size."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.tile import Tile


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """One and several axes, once, never, a vector, a scalar, batch 0, int8."""
    x = rng.integers(-99, 99, (2, 3, 4)).astype(np.float32)
    for repeats in [(1, 2, 1), (3, 1, 2), (1, 1, 1), (2, 0, 1)]:
        expected = np.zeros([d * n for d, n in zip(x.shape, repeats, strict=True)], np.float32)
        for place in np.ndindex(*expected.shape):
            expected[place] = x[tuple(i % d for i, d in zip(place, x.shape, strict=True))]
        name = "_".join(map(str, repeats))
        yield Case(f"repeats_{name}", Tile(), (x, np.array(repeats)), (expected,), constants=(1,))
    small = np.array([1, -2], np.int8)
    yield Case("vector", Tile(), (small, np.array([3])), (np.array([1, -2, 1, -2, 1, -2], np.int8),), constants=(1,))
    yield Case("scalar", Tile(), (np.array(5), np.zeros(0, np.int64)), (np.array(5),), constants=(1,))
    yield Case("batch_0", Tile(), (x[:0], np.array([5, 1, 2])), (np.zeros((0, 3, 8), np.float32),), constants=(1,))
