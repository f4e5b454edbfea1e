"""Cases of GlobalLpPool: NumPy in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.global_lp_pool import GlobalLpPool


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Powers 1 to 3, several ranks, float16, no elements, batch 0."""
    for shape in ((2, 3, 7, 5), (1, 2, 3), (2, 3), (1, 2, 2, 3, 2), (0, 2, 3), (1, 2, 0)):
        for p in (1, 2, 3):
            x = rng.standard_normal(shape).astype(np.float32)
            total = (np.abs(x.astype(np.float64)) ** p).reshape(*shape[:2], -1).sum(-1) if x.size else np.zeros(shape[:2])
            want = (total ** (1 / p)).reshape(*shape[:2], *(1,) * (len(shape) - 2)).astype(np.float32)
            yield Case(f"p_{p}_{'x'.join(map(str, shape))}", GlobalLpPool(p=p), (x,), (want,))
    half = rng.standard_normal((2, 2, 9)).astype(np.float16)
    want = np.sqrt((half.astype(np.float64) ** 2).sum(-1, keepdims=True)).astype(np.float16)
    yield Case("float16", GlobalLpPool(), (half,), (want,), rtol=2e-3)
