"""Conversion between float16 and float32 gives NumPy's bits: for all halves, next to all ties, and for any bits."""

import numpy as np
import pytest

from dovetail_ops_onnx import _halves
from dovetail_ops_onnx._casts import to_integer

ALL = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE = np.sort(ALL[np.isfinite(ALL)].astype(np.float64))
TIES = ((FINITE[1:] + FINITE[:-1]) / 2).astype(np.float32)

HALVES = {
    "all": ALL,
    "finite": FINITE.astype(np.float16),
    "infinite in the last block": np.append(np.tile(ALL[:0x7C00], 2), np.float16(np.inf)),
    "transposed": np.random.default_rng(0).permutation(ALL).reshape(128, 512).T,
    "every third": np.random.default_rng(1).permutation(ALL)[::3],
    "few": ALL[::100],
    "none": ALL[:0].reshape(3, 0),
}
SINGLES = {
    "ties": TIES,
    "above ties": np.nextafter(TIES, np.float32(np.inf)),
    "below ties": np.nextafter(TIES, np.float32(-np.inf)),
    "halves": FINITE.astype(np.float32),
    "any bits": np.random.default_rng(2).integers(0, 1 << 32, 1 << 20, dtype=np.uint32).view(np.float32),
    "tiny": np.float32(2) ** -np.linspace(10, 149, 20_001, dtype=np.float32),
    "large": np.linspace(-70_000, 70_000, 200_001, dtype=np.float32),
    "transposed": np.random.default_rng(3).standard_normal((100, 333), np.float32).T,
    "few": TIES[::100],
    "none": TIES[:0].reshape(0, 2),
}


@pytest.mark.parametrize("name", HALVES)
def test_widened(name: str) -> None:
    halves = HALVES[name]
    found, wanted = _halves.widened(halves), halves.astype(np.float32)
    assert found.shape == halves.shape
    np.testing.assert_array_equal(found.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("name", SINGLES)
def test_narrowed(name: str) -> None:
    with np.errstate(all="ignore"):
        found, wanted = _halves.narrowed(SINGLES[name]), SINGLES[name].astype(np.float16)
    assert found.shape == SINGLES[name].shape
    np.testing.assert_array_equal(found.view(np.uint16), wanted.view(np.uint16))


@pytest.mark.parametrize("wide", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("narrow", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("beyond", [False, True])
def test_to_integer(wide: type, narrow: type, beyond: bool) -> None:
    """Around both bounds and zero, as Python's integers have it; `beyond` with values that are out of range and NaN."""
    low, high = (int(bound) for bound in (np.iinfo(narrow).min, np.iinfo(narrow).max))
    with np.errstate(over="ignore"):
        near = np.array([low, high, 0, low + 1, high - 1, high // 2], wide)
        steps = [near, *(np.nextafter(near, wide(end)) for end in (-np.inf, np.inf)), near + wide(0.75), near - wide(0.75)]
    values = np.concatenate(steps)
    inside = np.array([np.isfinite(v) and low <= int(v) <= high for v in values])
    values = np.append(values, [np.nan, np.inf, -np.inf]).astype(wide) if beyond else values[inside]
    wanted = [0 if np.isnan(v) else (low if v < 0 else high) if np.isinf(v) else min(high, max(low, int(v))) for v in values]
    with np.errstate(invalid="ignore"):
        found = to_integer(values, np.dtype(narrow))
    assert found.dtype == narrow
    assert found.tolist() == wanted
