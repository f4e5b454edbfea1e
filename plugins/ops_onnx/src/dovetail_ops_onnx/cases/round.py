"""Cases of Round: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import unary
from dovetail_ops_onnx.round import Round


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`; halves go to the even number."""
    yield from unary(rng, Round(), np.rint)
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997], np.float32)
    yield Case("halves", Round(), (halves,), (np.array([-2, -2, -0.0, 0, 2, 2, 0], np.float32),))
