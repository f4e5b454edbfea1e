"""Trilu of every size of elements, bit by bit."""

import ml_dtypes
import numpy as np
import pytest

from dovetail_ops_onnx.trilu import Trilu


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "float16", ml_dtypes.bfloat16, "float32", "int64", "complex64", "complex128", object]
)
@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("k", [-(2**62), -300, -1, 0, 2, 300, 2**62])
def test_elements(rng: np.random.Generator, dtype: str, upper: bool, k: int) -> None:
    for rows, columns in ((5, 7), (130, 3), (0, 4)):
        x = (
            np.full((2, rows, columns), "text", object)
            if dtype is object
            else rng.integers(1, 9, (2, rows, columns)).astype(dtype)
        )
        x = np.asfortranarray(x)
        x.flags.writeable = False
        y = Trilu(upper=upper).reference(x, np.array(k))
        assert (y.dtype, y.shape) == (x.dtype, x.shape)
        zero = "" if dtype is object else x.dtype.type(0)
        for n, i, j in np.ndindex(*y.shape):
            assert y[n, i, j] == (x[n, i, j] if (j - i >= k if upper else j - i <= k) else zero)


def test_infinities_and_nan_are_left_out() -> None:
    x = np.full((3, 3), np.inf, np.float32)
    x[0] = np.nan
    np.testing.assert_array_equal(Trilu(upper=False).reference(x), [[np.nan, 0, 0], [np.inf, np.inf, 0], [np.inf] * 3])
