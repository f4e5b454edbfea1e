"""Cases of Gelu: Python's math.erfc, or tanh in float64."""

import math
from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import unary
from dovetail_ops_onnx.gelu import Gelu


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`; both forms."""
    exact = np.vectorize(lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2)), otypes=[np.float64])
    yield from unary(rng, Gelu(), exact, special=(0.0, np.nan, np.inf, -3.0, 5.0, -5.0))
    factor = math.sqrt(2 / math.pi)
    yield from unary(
        rng,
        Gelu(approximate="tanh"),
        lambda x: 0.5 * x * (1 + np.tanh(factor * (x + 0.044715 * x**3))),
        special=(0.0, np.nan, np.inf, -3.0, 5.0, -5.0),
    )
