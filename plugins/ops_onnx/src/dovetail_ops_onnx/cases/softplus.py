"""Cases of Softplus: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import unary
from dovetail_ops_onnx.softplus import Softplus


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`; far out it is max(x, 0)."""
    yield from unary(rng, Softplus(), lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0))
    far = np.array([-200, -90, 90, 2000], np.float32)
    yield Case("far_out", Softplus(), (far,), (np.array([0, 0, 90, 2000], np.float32),))
