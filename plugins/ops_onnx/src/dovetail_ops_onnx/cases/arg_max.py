"""Cases of ArgMax: Python's search in each list, and by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.arg_max import ArgMax


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Each axis, keepdims, ties from both ends, NaN, integers, batch 0."""
    x = rng.permutation(30).reshape(2, 3, 5).astype(np.float32)
    for axis in (0, 1, 2, -1):
        lists = np.moveaxis(x, axis, -1).tolist()
        want = np.array([[row.index(max(row)) for row in rows] for rows in lists])
        yield Case(f"axis_{axis}_dropped", ArgMax(axis=axis, keepdims=False), (x,), (want,))
        yield Case(f"axis_{axis}", ArgMax(axis=axis), (x,), (np.expand_dims(want, axis),))
    ties = np.array([[4, 1, 4, 1], [2, 2, 2, 2]], np.int32)
    first, last = ([0, 0], [2, 3])
    yield Case("first_of_equal", ArgMax(axis=1, keepdims=False), (ties,), (np.array(first),))
    yield Case("last_of_equal", ArgMax(axis=1, keepdims=False, select_last_index=True), (ties,), (np.array(last),))
    nan = np.array([[1, np.nan, 9, np.nan]], np.float16)
    yield Case("nan", ArgMax(axis=1), (nan,), (np.array([[1]]),))
    yield Case("batch_0", ArgMax(axis=1), (x[:0],), (np.zeros((0, 1, 5), np.int64),))
