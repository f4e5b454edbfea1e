"""Cases of Reciprocal: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import unary
from dovetail_ops_onnx.reciprocal import Reciprocal


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`."""
    yield from unary(rng, Reciprocal(), lambda x: 1 / x, 0.25, 4.0)
