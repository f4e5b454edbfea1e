"""Cases of EyeLike: by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.op import DType
from dovetail.testing.case import Case
from dovetail_ops_onnx.eye_like import EyeLike


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Square and not, diagonals on both sides and outside, other types, batch 0."""
    x = rng.standard_normal((3, 4)).astype(np.float32)
    for k in (0, 1, -2, 4, -3):
        want = np.array([[float(column - row == k) for column in range(4)] for row in range(3)], np.float32)
        yield Case(f"k_{k}", EyeLike(k=k), (x,), (want,))
    yield Case("int64", EyeLike(dtype=DType.INT64), (x[:, :2],), (np.array([[1, 0], [0, 1], [0, 0]]),))
    yield Case("bool", EyeLike(), (np.zeros((1, 2), np.bool_),), (np.array([[True, False]]),))
    yield Case("batch_0", EyeLike(), (x[:0],), (x[:0],))
