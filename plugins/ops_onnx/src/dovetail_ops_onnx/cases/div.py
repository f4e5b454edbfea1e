"""Cases of Div: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import binary
from dovetail_ops_onnx.div import Div


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `binary`; division by 0, integers toward zero, and the two integer quotients that do not exist."""
    yield from binary(rng, Div(), lambda a, b: a / b, 0.25, 4.0)
    zeros = np.array([1, -1, 0, np.inf], np.float32)
    yield Case("by_0", Div(), (zeros, np.zeros(1, np.float32)), (np.array([np.inf, -np.inf, np.nan, np.inf], np.float32),))
    special = np.array([[0, -0.0, np.inf, -np.inf, np.nan, 4]], np.float32)
    want = np.array([[np.inf, -np.inf, 0, -0.0, np.nan, 0.25]], np.float32)
    yield Case("1_by_special", Div(), (np.ones(1, np.float32), special), (want,))
    a, b = np.array([7, -7, 7, -7, 6, 0], np.int32), np.array([2, 2, -2, -2, -3, 5], np.int32)
    yield Case("int32_truncates", Div(), (a, b), (np.array([3, -3, -3, 3, -2, 0], np.int32),))
    yield Case("uint8", Div(), (np.array([255, 7], np.uint8), np.array([2, 8], np.uint8)), (np.array([127, 0], np.uint8),))
    low = np.array([-128, -128, 5], np.int8)
    yield Case("int8_without_a_quotient", Div(), (low, np.array([-1, 0, 0], np.int8)), (np.array([-128, 0, 0], np.int8),))
    least = np.array(-(2**63))
    yield Case("int64_lowest_by_minus_1", Div(), (least, np.array(-1)), (least,))
