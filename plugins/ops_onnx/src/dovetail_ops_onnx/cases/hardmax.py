"""Cases of Hardmax, by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.hardmax import Hardmax, Hardmax_1


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Both axes, ties, NaN, the flattening form before version 13, batch 0, float16."""
    x = np.array([[[1, 3, 3], [0, -1, -2]], [[5, 5, 6], [7, 0, 7]]], np.float32)
    last = np.array([[[0, 1, 0], [1, 0, 0]], [[0, 0, 1], [1, 0, 0]]], np.float32)
    yield Case("last_axis_ties", Hardmax(), (x,), (last,))
    middle = np.array([[[1, 1, 1], [0, 0, 0]], [[0, 1, 0], [1, 0, 1]]], np.float32)
    yield Case("middle_axis", Hardmax(axis=1), (x,), (middle,))
    flat = np.array([[[0, 1, 0], [0, 0, 0]], [[0, 0, 0], [1, 0, 0]]], np.float32)
    yield Case("version_1_flattens", Hardmax_1(), (x,), (flat,))
    yield Case("version_1_vector", Hardmax_1(), (x[1, 0],), (last[1, 0],))
    nan = np.array([[2, np.nan, 3]], np.float16)
    yield Case("nan_float16", Hardmax(), (nan,), (np.array([[0, 1, 0]], np.float16),))
    yield Case("batch_0", Hardmax(), (x[:0],), (x[:0].copy(),))
    random = rng.permutation(60).reshape(3, 4, 5).astype(np.float32)
    want = np.array([[[float(v == max(row)) for v in row] for row in rows] for rows in random.tolist()], np.float32)
    yield Case("distinct", Hardmax(), (random,), (want,))
