"""Cases of ReduceSum: element by element in float64, and by hand."""

import math
from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._reductions import by_hand, reduction_cases
from dovetail_ops_onnx.reduce_sum import ReduceSum


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of every reduction, and values of its own by hand."""
    yield from reduction_cases(rng, ReduceSum, math.fsum)
    yield by_hand(ReduceSum, "integers", np.int32, [[1, -2, 5], [0, 0, 7]], [4, 7])
    yield by_hand(ReduceSum, "no_elements", np.float32, [[], []], [0, 0])
    yield by_hand(ReduceSum, "infinite_and_nan", np.float32, [[np.inf, 1], [np.inf, -np.inf]], [np.inf, np.nan])
