"""Cases of Atanh: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.atanh import Atanh
from dovetail_ops_onnx.cases._elementwise import unary


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`."""
    yield from unary(rng, Atanh(), np.arctanh, -0.9, 0.9, special=(0.0, 1.0, -1.0, 1.5, np.nan))
