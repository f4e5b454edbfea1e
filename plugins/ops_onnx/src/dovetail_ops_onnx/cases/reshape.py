"""Cases of Reshape: the same elements in the same order."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.reshape import Reshape


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """-1, 0 as a copy and as a size, scalars, higher rank, batch 0 with both, strings."""
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    rows = [("plain", (4, 6), (4, 6)), ("rest", (-1, 8), (3, 8)), ("copies", (0, 0, 2, 2), (2, 3, 2, 2))]
    rows += [("copies_and_rest", (0, -1), (2, 12)), ("higher_rank", (1, 2, 1, 12), (1, 2, 1, 12)), ("flat", (-1,), (24,))]
    for name, shape, expected in rows:
        yield Case(name, Reshape(), (x, np.array(shape)), (x.reshape(expected),), constants=(1,))
    yield Case("scalar", Reshape(), (x[0, 0, :1], np.zeros(0, np.int64)), (x[0, 0, 0:1].reshape(()),), constants=(1,))
    yield Case("batch_0_copies_and_rest", Reshape(), (x[:0], np.array([0, -1])), (np.zeros((0, 12), np.float32),), constants=(1,))
    yield Case("batch_0_rest", Reshape(), (x[:0], np.array([-1, 12])), (np.zeros((0, 12), np.float32),), constants=(1,))
    zero = np.zeros((0, 3), np.float32)
    yield Case(
        "allowzero", Reshape(allowzero=True), (zero, np.array([3, 4, 0])), (np.zeros((3, 4, 0), np.float32),), constants=(1,)
    )
    words = np.array([["a", "b"]], object)
    yield Case("string", Reshape(), (words, np.array([2])), (np.array(["a", "b"], object),), constants=(1,))
