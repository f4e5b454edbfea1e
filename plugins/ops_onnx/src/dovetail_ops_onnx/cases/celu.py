"""Cases of Celu: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import unary
from dovetail_ops_onnx.celu import Celu


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`; the default and another slope."""
    yield from unary(rng, Celu(), lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1))
    yield from unary(rng, Celu(alpha=2.5), lambda x: np.where(x > 0, x, 2.5 * (np.exp(np.minimum(x, 0) / 2.5) - 1)))
