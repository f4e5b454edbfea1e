"""Cases of GreaterOrEqual: Python's own comparison."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import comparison
from dovetail_ops_onnx.greater_or_equal import GreaterOrEqual


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `comparison`."""
    yield from comparison(rng, GreaterOrEqual(), lambda a, b: a >= b)
