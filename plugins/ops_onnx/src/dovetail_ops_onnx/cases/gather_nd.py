"""Cases of GatherND: coordinate by coordinate."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.gather_nd import GatherND


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Full and partial coordinates, negative ones, one and two batch axes, none, batch 0."""
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    full = np.array([[0, 0, 1], [1, -1, -4]])
    yield Case("full", GatherND(), (x, full), (np.array([x[0, 0, 1], x[1, 2, 0]]),))
    partial = np.array([[[0, 1]], [[-1, 2]], [[1, 0]]])
    yield Case("partial", GatherND(), (x, partial), (np.array([[x[0, 1]], [x[1, 2]], [x[1, 0]]]),))
    yield Case("one_coordinate", GatherND(), (x, np.array([1])), (x[1],))
    batched = np.array([[2], [-3]])
    yield Case("batch_dims_1", GatherND(batch_dims=1), (x, batched), (np.array([x[0, 2], x[1, 0]]),))
    twice = rng.integers(-4, 4, (2, 3, 5, 1))
    expected = [[[x[b, c, int(i)] for (i,) in twice[b, c]] for c in range(3)] for b in range(2)]
    yield Case("batch_dims_2", GatherND(batch_dims=2), (x, twice), (np.array(expected),))
    yield Case("none", GatherND(), (x, np.zeros((0, 2), np.int64)), (np.zeros((0, 4), np.float32),))
    yield Case("batch_0", GatherND(batch_dims=1), (x[:0], batched[:0]), (np.zeros((0, 4), np.float32),))
