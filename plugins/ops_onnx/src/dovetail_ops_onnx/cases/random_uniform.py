"""Cases of RandomUniform where chance has no say; plugins/ops_onnx/tests/test_random.py looks at the distribution."""

from collections.abc import Iterator

import numpy as np

from dovetail.op import DType
from dovetail.testing.case import Case
from dovetail_ops_onnx.random_uniform import RandomUniform


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Equal bounds, no element, float64."""
    yield Case("bounds", RandomUniform(shape=(2, 3), low=2.5, high=2.5), (), (np.full((2, 3), 2.5, np.float32),))
    yield Case("float64", RandomUniform(shape=(), low=-1.0, high=-1.0, dtype=DType.FLOAT64), (), (np.array(-1.0),))
    yield Case("batch_0", RandomUniform(shape=(0, 3), seed=1.0), (), (np.zeros((0, 3), np.float32),))
