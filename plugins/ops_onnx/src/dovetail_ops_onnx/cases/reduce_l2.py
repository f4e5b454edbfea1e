"""Cases of ReduceL2: element by element in float64, and by hand."""

import math
from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._reductions import by_hand, reduction_cases
from dovetail_ops_onnx.reduce_l2 import ReduceL2


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of every reduction, and values of its own by hand."""
    yield from reduction_cases(rng, ReduceL2, lambda values: math.sqrt(math.fsum(v * v for v in values)))
    yield by_hand(ReduceL2, "by_hand", np.float32, [[3, -4, 0], [0, 0, 7]], [5, 7])
    yield by_hand(ReduceL2, "integers_cut_off", np.int32, [[1, 1, 1], [3, 4, 0]], [1, 5])
    yield by_hand(ReduceL2, "no_elements", np.float32, [[], []], [0, 0])
