"""Cases of RandomNormal where chance has no say; plugins/ops_onnx/tests/test_random.py looks at the distribution."""

from collections.abc import Iterator

import numpy as np

from dovetail.op import DType
from dovetail.testing.case import Case
from dovetail_ops_onnx.random_normal import RandomNormal


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """No deviation, no element, float16."""
    yield Case("mean", RandomNormal(shape=(2, 3), mean=2.5, scale=0.0), (), (np.full((2, 3), 2.5, np.float32),))
    yield Case("float16", RandomNormal(shape=(), mean=-1.0, scale=0.0, dtype=DType.FLOAT16), (), (np.array(-1, np.float16),))
    yield Case("batch_0", RandomNormal(shape=(0, 3), seed=1.0), (), (np.zeros((0, 3), np.float32),))
