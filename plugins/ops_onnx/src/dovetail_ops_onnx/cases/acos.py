"""Cases of Acos: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.acos import Acos
from dovetail_ops_onnx.cases._elementwise import unary


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`."""
    yield from unary(rng, Acos(), np.arccos, -1.0, 1.0, special=(0.0, 1.0, -1.0, 1.5, np.nan))
