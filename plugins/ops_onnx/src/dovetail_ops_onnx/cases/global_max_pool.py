"""Cases of GlobalMaxPool."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.global_max_pool import GlobalMaxPool


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """One to three spatial axes, NaN, batch 0, float16."""
    for shape in ((2, 3, 7, 5), (1, 2, 9), (2, 1, 3, 2, 5)):
        x = rng.standard_normal(shape).astype(np.float32)
        want = np.array([[max(row.reshape(-1).tolist()) for row in item] for item in x], np.float32)
        yield Case(f"shape_{'x'.join(map(str, shape))}", GlobalMaxPool(), (x,), (want.reshape(*shape[:2], *(1,) * (x.ndim - 2)),))
    x = np.array([[[1, np.nan, 6], [-3, -2, -np.inf]]], np.float16)
    yield Case("nan_by_hand", GlobalMaxPool(), (x,), (np.array([[[np.nan], [-2]]], np.float16),))
    yield Case("batch_0", GlobalMaxPool(), (np.zeros((0, 3, 2, 2), np.float32),), (np.zeros((0, 3, 1, 1), np.float32),))
