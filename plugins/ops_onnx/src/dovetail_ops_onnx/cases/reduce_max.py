"""Cases of ReduceMax: element by element in float64, and by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._reductions import by_hand, reduction_cases
from dovetail_ops_onnx.reduce_max import ReduceMax


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of every reduction, and values of its own by hand."""
    yield from reduction_cases(rng, ReduceMax, max)
    yield by_hand(ReduceMax, "integers", np.int32, [[1, -2, 5], [-4, -3, -7]], [5, -3])
    yield by_hand(ReduceMax, "no_elements_int8", np.int8, [[], []], [-128, -128])
    yield by_hand(ReduceMax, "no_elements", np.float32, [[], []], [-np.inf, -np.inf])
    yield by_hand(ReduceMax, "nan", np.float32, [[1, np.nan, 5], [-np.inf, -3, -7]], [np.nan, -3])
    yield by_hand(ReduceMax, "bool", np.bool_, [[True, False], [False, False]], [True, False])
