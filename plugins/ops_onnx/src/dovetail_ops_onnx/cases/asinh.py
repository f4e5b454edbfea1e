"""Cases of Asinh: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.asinh import Asinh
from dovetail_ops_onnx.cases._elementwise import unary


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`."""
    yield from unary(rng, Asinh(), np.arcsinh, -9.0, 9.0)
