"""Cases of SwiGLU: the formula in float64."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.swi_glu import SwiGLU


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Two values of alpha, float64, float16, batch 0."""
    for name, alpha, dtype, tolerance in (
        ("float32", 1.0, np.float32, 1e-5),
        ("alpha", 1.7, np.float32, 1e-5),
        ("float64", 1.0, np.float64, 1e-12),
        ("float16", 1.0, np.float16, 4e-3),
    ):
        a, b = (rng.standard_normal((3, 7)).astype(dtype) for _ in range(2))
        wide = a.astype(np.float64)
        want = (wide / (1 + np.exp(-alpha * wide)) * b.astype(np.float64)).astype(dtype)
        yield Case(name, SwiGLU(alpha=alpha), (a, b), (want,), rtol=tolerance, atol=tolerance)
    yield Case("batch_0", SwiGLU(), (np.zeros((0, 2), np.float32),) * 2, (np.zeros((0, 2), np.float32),))
