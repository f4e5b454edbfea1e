"""Cases of Not: by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.not_ import Not


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """An odd size, a scalar, batch 0."""
    bits = rng.integers(0, 2, (3, 7))
    yield Case("odd_size", Not(), (bits == 1,), (bits == 0,))
    yield Case("scalar", Not(), (np.array(True),), (np.array(False),))
    yield Case("batch_0", Not(), (np.zeros((0, 3), np.bool_),), (np.zeros((0, 3), np.bool_),))
