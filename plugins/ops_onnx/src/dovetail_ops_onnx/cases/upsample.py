"""Cases of Upsample, by hand."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.upsample import Upsample


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Nearest and linear, a fractional scale, every type in nearest mode, batch 0."""
    x = np.array([[[[1, 2], [3, 4]]]], np.float32)
    scales = np.array([1, 1, 2, 3], np.float32)
    want = np.array([[[[1, 1, 1, 2, 2, 2]] * 2 + [[3, 3, 3, 4, 4, 4]] * 2]], np.float32).reshape(1, 1, 4, 6)
    yield Case("nearest", Upsample(), (x, scales), (want,), constants=(1,))
    line = np.array([[10, 20, 40]], np.float32)
    two = np.array([1, 2], np.float32)
    linear = np.array([[10, 15, 20, 30, 40, 40]], np.float32)
    yield Case("linear", Upsample(mode="linear"), (line, two), (linear,), constants=(1,))
    half = np.array([1, 1.5], np.float32)
    yield Case("fraction", Upsample(), (line, half), (np.array([[10, 10, 20, 40]], np.float32),), constants=(1,))
    flags = np.array([[True, False]])
    yield Case("bool", Upsample(), (flags, two), (np.array([[True, True, False, False]]),), constants=(1,))
    random = rng.standard_normal((2, 3, 5, 4)).astype(np.float32)
    doubled = np.repeat(np.repeat(random, 2, axis=2), 2, axis=3)
    yield Case("random", Upsample(), (random, np.array([1, 1, 2, 2], np.float32)), (doubled,), constants=(1,))
    yield Case("batch_0", Upsample(), (x[:0], scales), (np.zeros((0, 1, 4, 6), np.float32),), constants=(1,))
