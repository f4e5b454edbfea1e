"""Cases of ReduceMean: element by element in float64, and by hand."""

import math
from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._reductions import by_hand, reduction_cases
from dovetail_ops_onnx.reduce_mean import ReduceMean


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of every reduction, and values of its own by hand."""
    yield from reduction_cases(rng, ReduceMean, lambda values: math.fsum(values) / len(values))
    yield by_hand(ReduceMean, "integers_cut_off", np.int32, [[1, 2, 5], [-1, -2, -5]], [2, -2])
    yield by_hand(ReduceMean, "no_elements", np.float32, [[], []], [np.nan, np.nan])
