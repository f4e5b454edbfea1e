"""Cases of Bernoulli where chance has no say; plugins/ops_onnx/tests/test_random.py looks at the distribution."""

from collections.abc import Iterator

import numpy as np

from dovetail.op import DType
from dovetail.testing.case import Case
from dovetail_ops_onnx.bernoulli import Bernoulli


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Probabilities of 0 and 1, other types, batch 0."""
    x = np.array([[0, 1, 1], [1, 0, 0]], np.float32)
    yield Case("certain", Bernoulli(), (x,), (x,))
    yield Case("bool", Bernoulli(dtype=DType.BOOL, seed=2.0), (x.astype(np.float64),), (x == 1,))
    yield Case("batch_0", Bernoulli(), (x[:0],), (x[:0],))
