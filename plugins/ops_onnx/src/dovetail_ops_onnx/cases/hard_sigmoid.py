"""Cases of HardSigmoid: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import unary
from dovetail_ops_onnx.hard_sigmoid import HardSigmoid


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`; the default and other slopes."""
    yield from unary(rng, HardSigmoid(), lambda x: np.clip(0.2 * x + 0.5, 0, 1))
    yield from unary(rng, HardSigmoid(alpha=0.5, beta=0.25), lambda x: np.clip(0.5 * x + 0.25, 0, 1))
