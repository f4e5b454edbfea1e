"""LpNormalization into a result and as a reference, against float64, and where the norm is no usual number."""

from typing import Any

import numpy as np
import pytest

from dovetail_ops_onnx.lp_normalization import LpNormalization


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_both_forms(axis: int, p: int, dtype: type) -> None:
    x: Any = np.random.default_rng(7).standard_normal((5, 17, 33)).astype(dtype)
    x.flags.writeable = False
    wide = x.astype(np.float64)
    want = wide / (np.abs(wide) ** p).sum(axis, keepdims=True) ** (1 / p)
    op, written = LpNormalization(axis=axis, p=p), np.full_like(x, np.nan)
    op.write(written, x)
    for y in (op.reference(x), written):
        assert y.dtype == dtype
        np.testing.assert_allclose(y, want, rtol=1e-3 if dtype == np.float16 else 1e-5, atol=1e-7)


def test_norms_that_vanish_and_infinite_ones() -> None:
    x = np.array([[1e-30, -1e-30], [-0.0, 0], [np.inf, 1], [np.nan, 1], [-0.0, 2]], np.float32)
    y = np.empty_like(x)
    LpNormalization().write(y, x)
    np.testing.assert_array_equal(y, [[0, 0], [0, 0], [np.nan, 0], [np.nan, np.nan], [0, 1]])
    assert not np.signbit(y[:2]).any()
