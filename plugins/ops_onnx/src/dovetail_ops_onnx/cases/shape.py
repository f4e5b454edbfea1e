"""Cases of Shape: by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.shape import Shape


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """All of it, parts with negative and far bounds, a scalar, batch 0, bools."""
    x = rng.standard_normal((2, 3, 5)).astype(np.float32)
    yield Case("all", Shape(), (x,), (np.array([2, 3, 5]),))
    yield Case("from_1", Shape(start=1), (x,), (np.array([3, 5]),))
    yield Case("to_minus_1", Shape(end=-1), (x,), (np.array([2, 3]),))
    yield Case("last", Shape(start=-1), (x,), (np.array([5]),))
    yield Case("far_bounds", Shape(start=-9, end=9), (x,), (np.array([2, 3, 5]),))
    yield Case("crossed_bounds", Shape(start=2, end=1), (x,), (np.zeros(0, np.int64),))
    yield Case("scalar", Shape(), (np.array(1, np.int8),), (np.zeros(0, np.int64),))
    yield Case("batch_0", Shape(), (np.zeros((0, 4), np.bool_),), (np.array([0, 4]),))
