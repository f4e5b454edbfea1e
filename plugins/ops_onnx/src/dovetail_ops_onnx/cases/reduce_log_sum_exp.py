"""Cases of ReduceLogSumExp: element by element in float64, and by hand."""

import math
from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._reductions import by_hand, reduction_cases
from dovetail_ops_onnx.reduce_log_sum_exp import ReduceLogSumExp


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of every reduction, and values of its own by hand."""
    yield from reduction_cases(rng, ReduceLogSumExp, lambda values: math.log(math.fsum(map(math.exp, values))))
    yield by_hand(ReduceLogSumExp, "large", np.float32, [[1000, 1000], [-1000, -1000]], [1000 + np.log(2), -1000 + np.log(2)])
    yield by_hand(ReduceLogSumExp, "infinite", np.float32, [[-np.inf, -np.inf], [np.inf, 1]], [-np.inf, np.inf])
    yield by_hand(ReduceLogSumExp, "no_elements", np.float32, [[], []], [-np.inf, -np.inf])
