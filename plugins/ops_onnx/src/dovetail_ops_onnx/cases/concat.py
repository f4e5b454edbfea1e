"""Cases of Concat: assigned part by part."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.concat import Concat


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every axis from both ends, one and three inputs, parts of size 0, vectors, strings, batch 0."""
    x = rng.standard_normal((2, 6, 5)).astype(np.float32)
    for axis in (0, 1, 2, -1, -3):
        parts = [x.take(range(start, stop), axis) for start, stop in ((0, 1), (1, 1), (1, x.shape[axis]))]
        yield Case(f"axis_{axis}", Concat(axis=axis), tuple(parts), (x,))
    yield Case("one", Concat(axis=1), (x,), (x,))
    yield Case("same_twice", Concat(axis=0), (x[0, 0], x[0, 0]), (np.array([*x[0, 0], *x[0, 0]]),))
    yield Case("int64", Concat(axis=0), (np.array([2**63 - 1]), np.array([-1, 3])), (np.array([2**63 - 1, -1, 3]),))
    words = np.array(["a"], object), np.array(["b", ""], object)
    yield Case("string", Concat(axis=-1), words, (np.array(["a", "b", ""], object),))
    yield Case("batch_0", Concat(axis=1), (x[:0], x[:0, :1]), (np.zeros((0, 7, 5), np.float32),))
