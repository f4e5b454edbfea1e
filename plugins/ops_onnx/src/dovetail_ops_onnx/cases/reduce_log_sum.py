"""Cases of ReduceLogSum: element by element in float64, and by hand."""

import math
from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._reductions import by_hand, reduction_cases
from dovetail_ops_onnx.reduce_log_sum import ReduceLogSum


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of every reduction, and values of its own by hand."""
    yield from reduction_cases(rng, ReduceLogSum, lambda values: math.log(math.fsum(values)), positive=True)
    yield by_hand(ReduceLogSum, "zero_and_negative", np.float32, [[0, 0], [-2, 1]], [-np.inf, np.nan])
    yield by_hand(ReduceLogSum, "no_elements", np.float32, [[], []], [-np.inf, -np.inf])
