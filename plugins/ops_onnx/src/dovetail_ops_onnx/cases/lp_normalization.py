"""Cases of LpNormalization, by hand and in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.lp_normalization import LpNormalization


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Both norms, each axis, zeros, batch 0, float16."""
    x = np.array([[3, -4], [0, 0]], np.float32)
    yield Case("p_2", LpNormalization(), (x,), (np.array([[0.6, -0.8], [0, 0]], np.float32),))
    yield Case("p_1", LpNormalization(p=1), (x,), (np.array([[3 / 7, -4 / 7], [0, 0]], np.float32),))
    yield Case("axis_0", LpNormalization(axis=0), (x,), (np.array([[1, -1], [0, 0]], np.float32),))
    y = rng.standard_normal((2, 3, 5)).astype(np.float32)
    lengths = np.array([[sum(float(y[n, c, i]) ** 2 for c in range(3)) ** 0.5 for i in range(5)] for n in range(2)])
    yield Case("middle_axis", LpNormalization(axis=1), (y,), ((y / lengths[:, None]).astype(np.float32),))
    yield Case("batch_0", LpNormalization(), (y[:0],), (y[:0].copy(),))
    half = np.array([[300, 400]], np.float16)
    yield Case("float16_no_overflow", LpNormalization(), (half,), (np.array([[0.6, 0.8]], np.float16),), rtol=2e-3)
