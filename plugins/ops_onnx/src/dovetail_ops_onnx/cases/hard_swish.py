"""Cases of HardSwish: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import unary
from dovetail_ops_onnx.hard_swish import HardSwish


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`."""
    yield from unary(rng, HardSwish(), lambda x: x * np.clip(x / 6 + 0.5, 0, 1), -5.0, 5.0)
