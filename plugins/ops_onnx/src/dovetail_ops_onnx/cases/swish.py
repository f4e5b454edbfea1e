"""Cases of Swish: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import unary
from dovetail_ops_onnx.swish import Swish


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`; the default and another factor."""
    yield from unary(rng, Swish(), lambda x: x / (1 + np.exp(-x)))
    yield from unary(rng, Swish(alpha=1.702), lambda x: x / (1 + np.exp(-1.702 * x)))
