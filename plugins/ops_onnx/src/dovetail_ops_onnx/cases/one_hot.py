"""Cases of OneHot: by hand, and element by element."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.one_hot import OneHot


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every axis from both ends, negative indices and those out of range, float indices, other value types, depth 0, batch 0."""
    indices = rng.integers(-6, 6, (2, 3))
    depth, values = np.array(5), np.array([0.5, 2], np.float32)
    last = np.full((2, 3, 5), 0.5, np.float32)
    for place, index in np.ndenumerate(indices):
        if -5 <= index < 5:
            last[(*place, int(index))] = 2
    for axis, order in [(-1, (0, 1, 2)), (2, (0, 1, 2)), (1, (0, 2, 1)), (-2, (0, 2, 1)), (0, (2, 0, 1)), (-3, (2, 0, 1))]:
        yield Case(f"axis_{axis}", OneHot(axis=axis), (indices, depth, values), (last.transpose(order),), constants=(1,))
    whole = np.array([[0, 1, 0], [0, 0, 1]], np.int8)
    inputs = np.array([1, -1], np.float32), np.array([3.0], np.float32), np.array([0, 1], np.int8)
    yield Case("float_indices", OneHot(), inputs, (whole,), constants=(1,))
    scalar = np.array(2, np.int32), np.array(3, np.int32), np.array([False, True])
    yield Case("scalar", OneHot(), scalar, (np.array([False, False, True]),), constants=(1,))
    yield Case("depth_0", OneHot(), (indices, np.array(0), values), (np.zeros((2, 3, 0), np.float32),), constants=(1,))
    yield Case("batch_0", OneHot(), (indices[:0], depth, values), (np.zeros((0, 3, 5), np.float32),), constants=(1,))
