"""Cases of Size: by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.size import Size


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Three axes, a scalar, batch 0."""
    yield Case("three_axes", Size(), (rng.standard_normal((2, 3, 5)).astype(np.float32),), (np.array(30),))
    yield Case("scalar", Size(), (np.array(2.5),), (np.array(1),))
    yield Case("batch_0", Size(), (np.zeros((0, 3), np.int8),), (np.array(0),))
