"""Div, BitShift and MatMulInteger of integers, number by number: with and without what their fast paths leave out."""

import numpy as np
import pytest

from dovetail_ops_onnx.bit_shift import BitShift
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.mat_mul_integer import MatMulInteger

TYPES = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def divided(a: int, b: int) -> int:
    """Toward zero; by 0 it is 0."""
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("least", [(0, 1), (0, 0), (-9, 1), (0, -9), (-9, -9)])
def test_div(dtype: type, least: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    lows = [max(low, int(np.iinfo(dtype).min)) for low in least]
    a, b = (rng.integers(low, 10, (20, 30)).astype(dtype) for low in lows)
    a[0, 0], b[1, 1] = np.iinfo(dtype).max, np.iinfo(dtype).max
    found = Div().reference(a, b)
    assert found.dtype == dtype
    assert found.tolist() == [[divided(int(x), int(y)) for x, y in zip(*rows, strict=True)] for rows in zip(a, b, strict=True)]
    assert Div().reference(a[:0], b[:1]).shape == (0, 30)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("places", ["inside", "width", "negative"])
def test_bit_shift(dtype: type, direction: str, places: str) -> None:
    rng = np.random.default_rng(1)
    width, signed = 8 * np.dtype(dtype).itemsize, np.iinfo(dtype).min < 0
    x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 200, dtype, endpoint=True)
    y = rng.integers(0, width, 200).astype(dtype)
    if places != "inside":
        y[::7] = -1 if places == "negative" and signed else width
    want = []
    for value, place in zip(x.tolist(), y.tolist(), strict=True):
        far = place if 0 <= place < width else width
        bits = (value << far if direction == "LEFT" else value >> far) & (1 << width) - 1
        want.append(bits - (1 << width) if signed and bits >> (width - 1) else bits)
    found = BitShift(direction=direction).reference(x, y)
    assert found.dtype == dtype
    assert found.tolist() == want
    assert BitShift(direction=direction).reference(x[:0], y[:0]).shape == (0,)


@pytest.mark.parametrize("k", [1, 257, 258, 259, 40_000])
def test_the_largest_sums_of_bytes(k: int) -> None:
    """Of every sign, up to which float32 has all whole numbers and beyond, where int32 wraps in the end."""
    a, b = np.full((2, k), 255, np.uint8), np.full((k, 2), 255, np.uint8)
    a[1], b[:, 1], b[0, 1] = 254, 0, 1
    for zero in (0, 255):
        want = (a.astype(np.int64) @ (b.astype(np.int64) - zero)).astype(np.int32)
        np.testing.assert_array_equal(MatMulInteger().reference(a, b, None, np.uint8(zero)), want)
