"""Cases of Asin: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.asin import Asin
from dovetail_ops_onnx.cases._elementwise import unary


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`."""
    yield from unary(rng, Asin(), np.arcsin, -1.0, 1.0, special=(0.0, 1.0, -1.0, -1.5, np.nan))
