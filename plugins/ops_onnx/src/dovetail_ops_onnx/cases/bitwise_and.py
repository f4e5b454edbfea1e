"""Cases of BitwiseAnd: Python's integers."""

import operator
from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.bitwise_and import BitwiseAnd
from dovetail_ops_onnx.cases._integers import bits


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `bits`."""
    yield from bits(rng, BitwiseAnd(), operator.and_)
