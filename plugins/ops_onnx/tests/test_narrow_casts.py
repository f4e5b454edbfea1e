"""Casts to and from floats of 8 bits and fewer, by ml_dtypes' conversion of single numbers."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dovetail.op import DType
from dovetail_ops_onnx._casts import cast
from dovetail_ops_onnx._elementwise import wide

FLOAT8 = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz]
NARROW = [*FLOAT8, ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn]
SOURCES = [np.float32, np.float16, np.float64, ml_dtypes.bfloat16, np.int8, np.uint8, np.int64, np.bool_]


def drawn(source: Any, dtype: Any) -> Any:
    """Numbers of all sizes, ends of the range, halves between two numbers of the type, infinities and NaN, of a source's type."""
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 2**32, 4000, dtype=np.uint32).view(np.float32)
    own = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    ordered = np.sort(own[np.isfinite(own)])
    between = (ordered[1:] + ordered[:-1]) / 2
    most = ordered[-1] * np.float32([1, 1.03, 1.04, 1.0625, 1.07, 2, -1, -1.03, -1.07, -2])
    x = np.concatenate([bits, own, between, most, np.float32([0, -0.0, np.inf, -np.inf, np.nan])])
    with np.errstate(all="ignore"):
        return x.astype(source) if np.dtype(source).kind not in "iub" else np.nan_to_num(np.clip(x, -100, 250)).astype(source)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: np.dtype(source).name)
@pytest.mark.parametrize("dtype", FLOAT8, ids=lambda dtype: np.dtype(dtype).name)
def test_saturating(dtype: Any, source: Any) -> None:
    """The nearest number; the greatest one instead of infinities and of NaN that was none."""
    x = drawn(source, dtype)
    with np.errstate(all="ignore"):
        numbers = x.astype(np.float64)
        nearest = x.astype(np.float32).astype(dtype)
        lost = ~np.isfinite(nearest.astype(np.float32)) & ~np.isnan(numbers)
        most = np.float32(ml_dtypes.finfo(dtype).max)
        expected = np.where(lost, np.copysign(most, numbers), nearest.astype(np.float32))
    found = cast(x, DType.of(np.dtype(dtype)))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(np.float32), expected)
    signs = np.signbit(found.astype(np.float32)) == np.signbit(expected)
    assert signs[~np.isnan(expected)].all()


@pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: np.dtype(dtype).name)
def test_widening(dtype: Any) -> None:
    """Every byte, in every layout of memory."""
    every = np.arange(256, dtype=np.uint8).view(dtype)
    for x in (every, every.reshape(16, 16).T, every[::-3], every[:0], every[5]):
        expected = np.asarray(x).astype(np.float32)
        found = wide(np.asarray(x))
        assert (found.dtype, found.shape) == (np.float32, expected.shape)
        np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))
