"""Cases of ReduceL1: element by element in float64, and by hand."""

import math
from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._reductions import by_hand, reduction_cases
from dovetail_ops_onnx.reduce_l1 import ReduceL1


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of every reduction, and values of its own by hand."""
    yield from reduction_cases(rng, ReduceL1, lambda values: math.fsum(map(abs, values)))
    yield by_hand(ReduceL1, "integers", np.int32, [[1, -2, 5], [0, 0, -7]], [8, 7])
    yield by_hand(ReduceL1, "no_elements", np.float32, [[], []], [0, 0])
