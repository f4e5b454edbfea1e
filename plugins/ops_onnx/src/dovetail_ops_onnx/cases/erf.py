"""Cases of Erf: Python's math.erf."""

import math
from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import typed, unary
from dovetail_ops_onnx.erf import Erf


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`; where the approximation changes, and near 0."""
    exact = np.vectorize(math.erf, otypes=[np.float64])
    yield from unary(rng, Erf(), exact)
    yield typed(
        "borders_of_the_method", Erf(), exact, np.array([0.46875, 0.4687501, 4.0, 4.0001, 5.9, 6.1, -3.99, -0.3], np.float64)
    )
    yield typed("near_0", Erf(), exact, np.array([1e-300, -1e-20, 1e-8, 0.0], np.float64))
