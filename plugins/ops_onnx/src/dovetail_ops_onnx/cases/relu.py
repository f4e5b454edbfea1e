"""Cases of Relu: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import unary
from dovetail_ops_onnx.relu import Relu


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `unary`; signed integers."""
    yield from unary(rng, Relu(), lambda x: np.where(x < 0, 0, x), special=(0.0, np.inf, -np.inf, np.nan, 1.0, -1.0))
    yield Case("int8", Relu(), (np.array([-128, -1, 0, 1, 127], np.int8),), (np.array([0, 0, 0, 1, 127], np.int8),))
    yield Case("int64", Relu(), (np.array([-(2**63), 2**63 - 1]),), (np.array([0, 2**63 - 1]),))
