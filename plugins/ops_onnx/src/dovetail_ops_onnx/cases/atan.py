"""Cases of Atan: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.atan import Atan
from dovetail_ops_onnx.cases._elementwise import unary


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`."""
    yield from unary(rng, Atan(), np.arctan, -9.0, 9.0)
