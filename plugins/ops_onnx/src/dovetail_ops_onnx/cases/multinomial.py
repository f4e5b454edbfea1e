"""Cases of Multinomial where chance has no say; plugins/ops_onnx/tests/test_random.py looks at the distribution."""

from collections.abc import Iterator

import numpy as np

from dovetail.op import DType
from dovetail.testing.case import Case
from dovetail_ops_onnx.multinomial import Multinomial


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """One possible class a row, both types, batch 0."""
    x = np.full((2, 4), -np.inf, np.float32)
    x[0, 2], x[1, 0] = 3, -7
    yield Case("certain", Multinomial(sample_size=3), (x,), (np.array([[2] * 3, [0] * 3], np.int32),))
    yield Case("int64", Multinomial(dtype=DType.INT64, seed=1.0), (x[:1],), (np.array([[2]]),))
    yield Case("batch_0", Multinomial(), (x[:0],), (np.zeros((0, 1), np.int32),))
