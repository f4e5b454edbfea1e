"""Cases of LeakyRelu: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import unary
from dovetail_ops_onnx.leaky_relu import LeakyRelu


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`; the default, a larger and a negative slope."""
    yield from unary(rng, LeakyRelu(), lambda x: np.where(x < 0, 0.01 * x, x))
    yield from unary(rng, LeakyRelu(alpha=0.25), lambda x: np.where(x < 0, 0.25 * x, x))
    yield from unary(rng, LeakyRelu(alpha=-1.5), lambda x: np.where(x < 0, -1.5 * x, x))
