"""Cases of Add: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cases._elementwise import binary


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `binary`; integers wrap."""
    yield from binary(rng, Add(), lambda a, b: a + b)
    a, b, c = (np.array(values, np.int8) for values in ([100, -100, 5], [100, -100, -7], [-56, 56, -2]))
    yield Case("int8_wraps", Add(), (a, b), (c,))
    x = rng.integers(-1000, 1000, (3, 5))
    yield Case("int64", Add(), (x, x[:1]), (np.array([[int(p) + int(q) for p, q in zip(row, x[0], strict=True)] for row in x]),))
