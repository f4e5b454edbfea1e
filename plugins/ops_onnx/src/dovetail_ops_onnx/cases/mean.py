"""Cases of Mean: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import binary, typed
from dovetail_ops_onnx.mean import Mean


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `binary` for two inputs; one, three and five."""
    yield from binary(rng, Mean(), lambda a, b: (a + b) / 2)
    a, b, c = (rng.standard_normal((3, 5)).astype(np.float32) for _ in range(3))
    yield Case("one", Mean(), (a,), (a,))
    yield typed("three", Mean(), lambda *given: (given[0] + given[1] + given[2]) / 3, a, b[:, :1], c[0])
    yield typed("five", Mean(), lambda *given: np.stack(given).mean(axis=0), a, b, c, a, b)
