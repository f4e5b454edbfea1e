"""Cases of Unsqueeze: the same elements in the same order."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.unsqueeze import Unsqueeze, Unsqueeze_1


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """One axis, several in any order, negative ones, a scalar, batch 0, the older class."""
    x = rng.standard_normal((3, 5)).astype(np.float32)
    for cls in (Unsqueeze, Unsqueeze_1):
        for axes, shape in [((0,), (1, 3, 5)), ((3, 0), (1, 3, 5, 1)), ((-1,), (3, 5, 1)), ((1, -2), (3, 1, 1, 5)), ((), (3, 5))]:
            name = "_".join(str(axis) for axis in axes) or "none"
            yield Case(
                f"axes_{name}_since_{cls.since}", cls(), (x, np.array(axes, np.int64)), (x.reshape(shape),), constants=(1,)
            )
    yield Case("scalar", Unsqueeze(), (np.array(7), np.array([0, 1])), (np.array([[7]]),), constants=(1,))
    yield Case("batch_0", Unsqueeze(), (x[:0], np.array([1])), (np.zeros((0, 1, 5), np.float32),), constants=(1,))
