"""Cases of Neg: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import unary
from dovetail_ops_onnx.neg import Neg


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`; integers, the lowest of which wraps."""
    yield from unary(rng, Neg(), lambda x: -x)
    yield Case("int8", Neg(), (np.array([-128, -5, 0, 127], np.int8),), (np.array([-128, 5, 0, -127], np.int8),))
    yield Case("int64", Neg(), (np.array([3, -(2**62)]),), (np.array([-3, 2**62]),))
