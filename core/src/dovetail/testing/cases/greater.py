"""Cases of Greater: Python's own comparison."""

from collections.abc import Iterator

import numpy as np

from dovetail.ops.greater import Greater
from dovetail.testing.case import Case
from dovetail.testing.cases._elementwise import comparison


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `comparison`."""
    yield from comparison(rng, Greater(), lambda a, b: a > b)
