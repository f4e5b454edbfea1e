"""Cases of RandomNormalLike where chance has no say; plugins/ops_onnx/tests/test_random.py looks at the distribution."""

from collections.abc import Iterator

import numpy as np

from dovetail.op import DType
from dovetail.testing.case import Case
from dovetail_ops_onnx.random_normal_like import RandomNormalLike


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """The input's type, another type, batch 0."""
    x = np.zeros((2, 3), np.float64)
    yield Case("same_type", RandomNormalLike(mean=2.5, scale=0.0), (x,), (np.full((2, 3), 2.5),))
    other = RandomNormalLike(mean=2.5, scale=0.0, dtype=DType.FLOAT32)
    yield Case("float32", other, (np.zeros((1, 2), np.int32),), (np.full((1, 2), 2.5, np.float32),))
    yield Case("batch_0", RandomNormalLike(), (x[:0],), (x[:0],))
