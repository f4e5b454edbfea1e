"""Cases of Squeeze: the same elements in the same order."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.squeeze import Squeeze, Squeeze_1


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """All axes of size 1, some, negative ones, none, a scalar result, batch 0, the older class."""
    x = rng.standard_normal((1, 3, 1, 5, 1)).astype(np.float32)
    for cls in (Squeeze, Squeeze_1):
        yield Case(f"all_since_{cls.since}", cls(), (x,), (x.reshape(3, 5),))
        for axes, shape in [((0,), (3, 1, 5, 1)), ((2, 0), (3, 5, 1)), ((-1, 0), (3, 1, 5)), ((), x.shape)]:
            name = "_".join(str(axis) for axis in axes) or "none"
            yield Case(
                f"axes_{name}_since_{cls.since}", cls(), (x, np.array(axes, np.int64)), (x.reshape(shape),), constants=(1,)
            )
    yield Case("to_scalar", Squeeze(), (np.array([[7]]),), (np.array(7),))
    yield Case(
        "batch_0", Squeeze(), (np.zeros((0, 1, 2), np.float32), np.array([1])), (np.zeros((0, 2), np.float32),), constants=(1,)
    )
