"""Cases of Equal: Python's own comparison."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._elementwise import comparison
from dovetail_ops_onnx.equal import Equal


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `comparison`; bools and strings."""
    yield from comparison(rng, Equal(), lambda a, b: a == b)
    flags = np.array([True, False, True]), np.array([True, True, False])
    yield Case("bool", Equal(), flags, (np.array([True, False, False]),))
    words = np.array(["a", "b", ""], object), np.array(["a", "B", ""], object)
    yield Case("string", Equal(), words, (np.array([True, False, True]),))
