"""Cases of Sinh: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.ops.sinh import Sinh
from dovetail.testing.case import Case
from dovetail.testing.cases._elementwise import unary


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`."""
    yield from unary(rng, Sinh(), np.sinh)
