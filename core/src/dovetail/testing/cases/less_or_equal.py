"""Cases of LessOrEqual: Python's own comparison."""

from collections.abc import Iterator

import numpy as np

from dovetail.ops.less_or_equal import LessOrEqual
from dovetail.testing.case import Case
from dovetail.testing.cases._elementwise import comparison


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `comparison`."""
    yield from comparison(rng, LessOrEqual(), lambda a, b: a <= b)
