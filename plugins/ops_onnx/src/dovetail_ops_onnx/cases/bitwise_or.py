"""Cases of BitwiseOr: Python's integers."""

import operator
from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.bitwise_or import BitwiseOr
from dovetail_ops_onnx.cases._integers import bits


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `bits`."""
    yield from bits(rng, BitwiseOr(), operator.or_)
