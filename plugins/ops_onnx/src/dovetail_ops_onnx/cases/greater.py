"""Cases of Greater: Python's own comparison."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import comparison
from dovetail_ops_onnx.greater import Greater


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `comparison`."""
    yield from comparison(rng, Greater(), lambda a, b: a > b)
