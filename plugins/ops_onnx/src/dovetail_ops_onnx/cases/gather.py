"""Cases of Gather: index by index."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.gather import Gather


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every axis from both ends, indices of rank 0 to 2, negative and repeated ones, int32, none, strings, batch 0."""
    x = rng.standard_normal((3, 4, 5)).astype(np.float32)
    matrix = np.array([[0, 2, -1], [-3, 1, 1]])
    expected = {0: np.array([[x[i] for i in row] for row in matrix]), 1: np.zeros((3, 2, 3, 5), np.float32)}
    expected[2] = np.zeros((3, 4, 2, 3), np.float32)
    for place, index in np.ndenumerate(matrix):
        expected[1][:, *place] = x[:, index]
        expected[2][..., *place] = x[..., index]
    for axis in range(3):
        yield Case(f"axis_{axis}", Gather(axis=axis), (x, matrix), (expected[axis],))
        yield Case(f"axis_{axis - 3}", Gather(axis=axis - 3), (x, matrix.astype(np.int32)), (expected[axis],))
    yield Case("scalar_index", Gather(axis=1), (x, np.array(2)), (x[:, 2],))
    yield Case("scalar_of_vector", Gather(), (np.array([5, 6, 7]), np.array(-1, np.int32)), (np.array(7),))
    yield Case("no_index", Gather(), (x, np.zeros(0, np.int64)), (x[:0],))
    words = np.array(["a", "b"], object)
    yield Case("string", Gather(), (words, np.array([1, 1, 0])), (np.array(["b", "b", "a"], object),))
    yield Case("string_scalar", Gather(), (words, np.array(-1)), (np.array("b", object),))
    yield Case("batch_0", Gather(axis=1), (x[:0], np.array([1])), (x[:0, 1:2],))
