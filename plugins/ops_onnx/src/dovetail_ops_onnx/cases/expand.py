"""Cases of Expand: a multiplication by ones, which broadcasts too."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.expand import Expand


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Sizes of 1 on either side, new axes, a shape of lower rank, scalars, size 0, bools."""
    x = rng.standard_normal((3, 1, 5)).astype(np.float32)
    rows = [("middle", (3, 4, 5)), ("both_ways", (2, 1, 4, 1)), ("lower_rank", (4, 1)), ("same", (3, 1, 5)), ("empty_shape", ())]
    rows += [("size_0", (0, 3, 1, 5)), ("new_axes", (2, 2, 1, 1, 1))]
    for name, shape in rows:
        yield Case(name, Expand(), (x, np.array(shape, np.int64)), (x * np.ones(shape, np.float32),), constants=(1,))
    yield Case("scalar", Expand(), (np.array(7), np.array([2, 3])), (np.array([[7, 7, 7], [7, 7, 7]]),), constants=(1,))
    flags = np.array([[True], [False]])
    yield Case("bool", Expand(), (flags, np.array([1, 3])), (np.array([[True] * 3, [False] * 3]),), constants=(1,))
