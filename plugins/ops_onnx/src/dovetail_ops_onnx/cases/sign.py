"""Cases of Sign: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import unary
from dovetail_ops_onnx.sign import Sign


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`; integers."""
    yield from unary(rng, Sign(), lambda x: np.where(x > 0, 1, np.where(x < 0, -1, x)))
    yield Case("int32", Sign(), (np.array([-(2**31), -1, 0, 7], np.int32),), (np.array([-1, -1, 0, 1], np.int32),))
    yield Case("uint8", Sign(), (np.array([0, 1, 255], np.uint8),), (np.array([0, 1, 1], np.uint8),))
