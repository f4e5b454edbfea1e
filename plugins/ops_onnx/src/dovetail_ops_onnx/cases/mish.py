"""Cases of Mish: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import unary
from dovetail_ops_onnx.mish import Mish


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`; far out it is max(x, 0)."""
    yield from unary(rng, Mish(), lambda x: x * np.tanh(np.log1p(np.exp(x))))
    far = np.array([-200, 90, 2000], np.float32)
    yield Case("far_out", Mish(), (far,), (np.array([0, 90, 2000], np.float32),))
