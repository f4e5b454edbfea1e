"""Cases of Mul: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import binary
from dovetail_ops_onnx.mul import Mul


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `binary`; integers wrap."""
    yield from binary(rng, Mul(), lambda a, b: a * b)
    a, b, c = (np.array(values, np.int8) for values in ([100, -100, 5], [3, 100, -7], [44, -16, -35]))
    yield Case("int8_wraps", Mul(), (a, b), (c,))
    x = rng.integers(-1000, 1000, (3, 5))
    yield Case("int64", Mul(), (x, x[:1]), (np.array([[int(p) * int(q) for p, q in zip(row, x[0], strict=True)] for row in x]),))
