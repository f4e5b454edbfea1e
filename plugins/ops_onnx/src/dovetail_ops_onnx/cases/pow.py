"""Cases of Pow: NumPy in float64, and Python's integers."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import binary
from dovetail_ops_onnx.pow import Pow


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `binary`; constant exponents, integers that wrap, negative exponents, and every mixture of kinds."""
    yield from binary(rng, Pow(), np.power, 0.25, 3.0)
    x = rng.uniform(0.5, 3, (3, 7)).astype(np.float32)
    for exponent in (2.0, 0.5, 3.0, -1.0, 0.0, 1.7):
        expected = (x.astype(np.float64) ** np.float64(np.float32(exponent))).astype(np.float32)
        yield Case(f"constant_{exponent}", Pow(), (x, np.array(exponent, np.float32)), (expected,), constants=(1,))
    column = np.array([[2.0]], np.float32)
    yield Case("constant_of_higher_rank", Pow(), (x[0], column), (x[:1] * x[:1],), constants=(1,))
    signed = np.array([-2, -2, -2, 0, 0], np.float32), np.array([3, 2, 0.5, 0, -1], np.float32)
    yield Case("negative_and_zero_bases", Pow(), signed, (np.array([-8, 4, np.nan, 1, np.inf], np.float32),))
    base, power = np.array([2, -3, 10, 7, 0], np.int32), np.array([10, 3, 9, 0, 0], np.int64)
    yield Case("int32_int64", Pow(), (base, power), (np.array([1024, -27, 10**9, 1, 1], np.int32),))
    wrapped = np.array([(3**41 + 2**63) % 2**64 - 2**63, 7**3])
    yield Case("int64_wraps", Pow(), (np.array([3, 7]), np.array([41, 3], np.uint8)), (wrapped,))
    down = np.array([1, -1, -1, 2, 0], np.int32), np.array([-5, -3, -2, -1, -1], np.int32)
    yield Case("negative_exponents_of_integers", Pow(), down, (np.array([1, -1, 1, 0, 0], np.int32),))
    roots = np.array([4, 9, 2], np.int32), np.array([0.5, 1.5, 40], np.float32)
    yield Case("int32_float32", Pow(), roots, (np.array([2, 27, 2**31 - 1], np.int32),))
    mixed = np.array([1.5, -2, 3], np.float32), np.array([2, 3, -1], np.int64)
    yield Case("float32_int64", Pow(), mixed, (np.array([2.25, -8, 1 / 3], np.float32),))
