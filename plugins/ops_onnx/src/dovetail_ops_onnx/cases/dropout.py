"""Cases of Dropout: nothing is dropped."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.dropout import Dropout, Dropout_7, Dropout_10


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """With and without mask, ratio and training_mode, in each of the three versions; batch 0."""
    x = rng.standard_normal((2, 3, 5)).astype(np.float32)
    kept = np.ones(x.shape, np.bool_)
    ratio, off, on = np.array(0.75, np.float32), np.array(False), np.array(True)
    yield Case("data", Dropout(), (x,), (x,))
    yield Case("mask", Dropout(), (x,), (x, kept))
    yield Case("ratio", Dropout(seed=3), (x, ratio), (x, kept))
    yield Case("inference", Dropout(), (x, ratio, off), (x,), constants=(1, 2))
    yield Case("training_without_drops", Dropout(), (x, np.array(0, np.float32), on), (x, kept), constants=(1, 2))
    yield Case("batch_0", Dropout(), (x[:0],), (x[:0], kept[:0]))
    yield Case("since_10", Dropout_10(ratio=0.25), (x,), (x,))
    yield Case("since_10_mask", Dropout_10(), (x,), (x, kept))
    yield Case("since_7", Dropout_7(ratio=0.25), (x,), (x,))
    yield Case("since_7_mask", Dropout_7(), (x.astype(np.float16),), (x.astype(np.float16), np.ones(x.shape, np.float16)))
