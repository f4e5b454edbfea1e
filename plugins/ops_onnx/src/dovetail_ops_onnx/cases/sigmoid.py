"""Cases of Sigmoid: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import typed, unary
from dovetail_ops_onnx.sigmoid import Sigmoid


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`; far out exp overflows."""
    yield from unary(rng, Sigmoid(), lambda x: 1 / (1 + np.exp(-x)))
    far = np.array([-200, -80, 80, 200], np.float32)
    yield typed("far_out", Sigmoid(), lambda x: 1 / (1 + np.exp(-x)), far)
