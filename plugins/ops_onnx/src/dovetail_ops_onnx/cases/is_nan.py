"""Cases of IsNaN: Python's math.isnan."""

import math
from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.is_nan import IsNaN


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Every floating-point width of NumPy, a scalar, batch 0."""
    values = rng.choice(np.array([0.0, -1.5, np.nan, np.inf, -np.inf, 6e4]), (5, 7))
    expected = np.vectorize(math.isnan)(values)
    for dtype in (np.float16, np.float32, np.float64):
        yield Case(np.dtype(dtype).name, IsNaN(), (values.astype(dtype),), (expected,))
    yield Case("scalar", IsNaN(), (np.array(np.nan, np.float32),), (np.array(True),))
    yield Case("batch_0", IsNaN(), (np.zeros((0, 2), np.float32),), (np.zeros((0, 2), np.bool_),))
