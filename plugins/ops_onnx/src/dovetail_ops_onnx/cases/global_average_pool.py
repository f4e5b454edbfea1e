"""Cases of GlobalAveragePool: means in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.global_average_pool import GlobalAveragePool


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """One to three spatial axes, odd sizes, batch 0, no elements, float16."""
    for shape in ((2, 3, 7, 5), (1, 2, 9), (2, 1, 3, 2, 5), (1, 33, 7, 7)):
        x = rng.standard_normal(shape).astype(np.float32)
        want = np.array([[row.astype(np.float64).sum() / row.size for row in item] for item in x]).astype(np.float32)
        yield Case(
            f"shape_{'x'.join(map(str, shape))}", GlobalAveragePool(), (x,), (want.reshape(*shape[:2], *(1,) * (x.ndim - 2)),)
        )
    yield Case("by_hand", GlobalAveragePool(), (np.array([[[1, 2, 6]]], np.float16),), (np.array([[[3]]], np.float16),))
    yield Case("batch_0", GlobalAveragePool(), (np.zeros((0, 3, 2, 2), np.float32),), (np.zeros((0, 3, 1, 1), np.float32),))
    nan = np.full((1, 2, 1, 1), np.nan, np.float32)
    yield Case("no_elements", GlobalAveragePool(), (np.zeros((1, 2, 0, 3), np.float32),), (nan,))
