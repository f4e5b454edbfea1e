"""Cases of Abs: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.abs import Abs
from dovetail_ops_onnx.cases._elementwise import unary


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`; integers, the lowest of which wraps."""
    yield from unary(rng, Abs(), np.abs)
    yield Case("int8", Abs(), (np.array([-128, -5, 0, 127], np.int8),), (np.array([-128, 5, 0, 127], np.int8),))
    yield Case("uint64", Abs(), (np.array([0, 2**64 - 1], np.uint64),), (np.array([0, 2**64 - 1], np.uint64),))
