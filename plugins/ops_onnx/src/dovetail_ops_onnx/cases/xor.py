"""Cases of Xor: the truth table."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.xor import Xor


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """The truth table by broadcasting, equal shapes of an odd size, scalars, batch 0."""
    both = np.array([False, True])
    table = np.array([[False, True], [True, False]])
    yield Case("truth_table", Xor(), (both[:, None], both), (table,))
    a, b = rng.integers(0, 2, (3, 5, 7)), rng.integers(0, 2, (3, 5, 7))
    yield Case("equal_shapes", Xor(), (a != 0, b != 0), (table[a, b],))
    yield Case("scalars", Xor(), (np.array(True), np.array(True)), (table[1, 1].reshape(()),))
    yield Case("batch_0", Xor(), (np.zeros((0, 2), np.bool_), both), (np.zeros((0, 2), np.bool_),))
