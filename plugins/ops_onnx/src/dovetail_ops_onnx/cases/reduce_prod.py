"""Cases of ReduceProd: element by element in float64, and by hand."""

import math
from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._reductions import by_hand, reduction_cases
from dovetail_ops_onnx.reduce_prod import ReduceProd


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of every reduction, and values of its own by hand."""
    yield from reduction_cases(rng, ReduceProd, math.prod)
    yield by_hand(ReduceProd, "integers", np.int32, [[1, -2, 5], [0, 0, 7]], [-10, 0])
    yield by_hand(ReduceProd, "no_elements", np.float32, [[], []], [1, 1])
