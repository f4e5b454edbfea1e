"""Cases of Acosh: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.acosh import Acosh
from dovetail_ops_onnx.cases._elementwise import unary


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`."""
    yield from unary(rng, Acosh(), np.arccosh, 1.0, 9.0, special=(1.0, np.inf, 0.5, np.nan))
