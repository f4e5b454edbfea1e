"""Cases of Sum: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import binary, typed
from dovetail_ops_onnx.sum import Sum


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `binary` for two inputs; one, three and five."""
    yield from binary(rng, Sum(), lambda a, b: a + b)
    a, b, c = (rng.standard_normal((3, 5)).astype(np.float32) for _ in range(3))
    yield Case("one", Sum(), (a,), (a,))
    yield typed("three", Sum(), lambda *given: given[0] + given[1] + given[2], a, b[:, :1], c[0])
    yield typed("five", Sum(), lambda *given: np.stack(given).sum(axis=0), a, b, c, a, b)
