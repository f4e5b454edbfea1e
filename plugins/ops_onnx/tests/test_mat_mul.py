"""Products of integers, which are made in float64 where that is exact: compared with Python's integers, which wrap nowhere."""

from typing import Any

import numpy as np
import pytest

from dovetail_ops_onnx.mat_mul import MatMul

LIMITS = {np.int32: (9, 2**15, 2**31 - 1), np.int64: (9, 2**24, 2**62), np.uint32: (9, 2**32 - 1), np.uint64: (9, 2**64 - 1)}
SHAPES = [
    ((7, 40), (40, 9)),
    ((3, 1, 5, 33), (4, 33, 6)),
    ((50,), (50, 11)),
    ((3, 700), (700,)),
    ((0, 300), (300, 4)),
    ((3, 0), (0, 900)),
]


@pytest.mark.parametrize(("dtype", "limit"), [(dtype, limit) for dtype, limits in LIMITS.items() for limit in limits])
@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_integers(dtype: Any, limit: int, a: Any, b: Any, rng: np.random.Generator) -> None:
    low = 0 if np.dtype(dtype).kind == "u" else -limit - 1
    x, y = (rng.integers(low, limit, shape, dtype=dtype, endpoint=True) for shape in (a, b))
    for one in (x, y):
        if one.size:
            one.reshape(-1)[0], one.reshape(-1)[-1] = low, limit
    exact = np.asarray(np.matmul(x.astype(object), y.astype(object)), object) & (2 ** (8 * x.itemsize) - 1)
    unsigned = np.array(exact.tolist(), np.uint64).reshape(exact.shape).astype(f"u{x.itemsize}")
    found = MatMul().reference(x, y)
    assert found.dtype == dtype
    assert np.array_equal(found, unsigned.view(dtype) if unsigned.ndim else unsigned.astype(dtype))
