"""Cases of Neg: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.ops.neg import Neg
from dovetail.testing.case import Case
from dovetail.testing.cases._elementwise import unary


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`; integers, the lowest of which wraps."""
    yield from unary(rng, Neg(), lambda x: -x)
    yield Case("int8", Neg(), (np.array([-128, -5, 0, 127], np.int8),), (np.array([-128, 5, 0, -127], np.int8),))
    yield Case("int64", Neg(), (np.array([3, -(2**62)]),), (np.array([-3, 2**62]),))
