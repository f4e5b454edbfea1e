"""Cases of HardSwish: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.ops.hard_swish import HardSwish
from dovetail.testing.case import Case
from dovetail.testing.cases._elementwise import unary


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`."""
    yield from unary(rng, HardSwish(), lambda x: x * np.clip(x / 6 + 0.5, 0, 1), -5.0, 5.0)
