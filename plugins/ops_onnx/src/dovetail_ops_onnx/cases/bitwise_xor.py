"""Cases of BitwiseXor: Python's integers."""

import operator
from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.bitwise_xor import BitwiseXor
from dovetail_ops_onnx.cases._integers import bits


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `bits`."""
    yield from bits(rng, BitwiseXor(), operator.xor)
