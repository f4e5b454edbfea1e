"""Cases of ReduceMin: element by element in float64, and by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._reductions import by_hand, reduction_cases
from dovetail_ops_onnx.reduce_min import ReduceMin


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Those of every reduction, and values of its own by hand."""
    yield from reduction_cases(rng, ReduceMin, min)
    yield by_hand(ReduceMin, "integers", np.int32, [[1, -2, 5], [4, 3, 7]], [-2, 3])
    yield by_hand(ReduceMin, "no_elements_uint8", np.uint8, [[], []], [255, 255])
    yield by_hand(ReduceMin, "no_elements", np.float32, [[], []], [np.inf, np.inf])
    yield by_hand(ReduceMin, "nan", np.float32, [[1, np.nan, 5], [np.inf, 3, 7]], [np.nan, 3])
    yield by_hand(ReduceMin, "bool", np.bool_, [[True, False], [True, True]], [False, True])
