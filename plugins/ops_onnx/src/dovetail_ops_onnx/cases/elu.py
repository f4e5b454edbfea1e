"""Cases of Elu: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import unary
from dovetail_ops_onnx.elu import Elu


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`; the default and another factor."""
    yield from unary(rng, Elu(), lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)) - 1, x))
    yield from unary(rng, Elu(alpha=2.5), lambda x: np.where(x < 0, 2.5 * (np.exp(np.minimum(x, 0)) - 1), x))
