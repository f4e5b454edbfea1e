"""Operators that work on the bits of numbers, or on whole arrays, against one element after the other."""

import numpy as np
import pytest

from dovetail_ops_onnx.is_inf import IsInf
from dovetail_ops_onnx.is_nan import IsNaN
from dovetail_ops_onnx.pow import Pow
from dovetail_ops_onnx.reverse_sequence import ReverseSequence
from dovetail_ops_onnx.thresholded_relu import ThresholdedRelu

HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


@pytest.mark.parametrize("x", [HALVES, HALVES.reshape(256, 256).T, HALVES[::3], HALVES[0x7C01], HALVES[:0]])
def test_nan_and_infinity_of_all_halves(x: np.ndarray) -> None:
    x = np.asarray(x)
    single = x.astype(np.float32)
    for found, want in (
        (IsNaN().reference(x), np.isnan(single)),
        (IsInf().reference(x), np.isinf(single)),
        (IsInf(detect_negative=False).reference(x), single == np.inf),
    ):
        assert isinstance(found, np.ndarray)
        assert (found.dtype, found.shape) == (np.bool_, x.shape)
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("alpha", [1.0, 0.0, -2.0, float("inf"), float("-inf")])
def test_thresholded_relu(rng: np.random.Generator, dtype: type, alpha: float) -> None:
    x = rng.standard_normal((7, 11)).astype(dtype)
    x[0, :7] = [np.nan, np.inf, -np.inf, 0, -0.0, 1, -2]
    for given in (x, x.T, x[::2, 1::3], x[:0], np.array(x[0, 0]), np.array(x[0, 5])):
        found = ThresholdedRelu(alpha=alpha).reference(given)
        want = np.array([0 if v <= alpha else v for v in given.ravel()], dtype).reshape(given.shape)
        assert (found.dtype, found.shape) == (want.dtype, want.shape)
        np.testing.assert_array_equal(found, want)
        np.testing.assert_array_equal(np.signbit(found)[~np.isnan(want)], np.signbit(want)[~np.isnan(want)])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 7, 30, 63, 2**40 + 1, -1, -2])
def test_one_integer_exponent(rng: np.random.Generator, dtype: type, exponent: int) -> None:
    bits = np.iinfo(dtype).bits
    x = np.append(rng.integers(-9, 9, 40), [0, 1, -1, np.iinfo(dtype).min, np.iinfo(dtype).max]).astype(dtype)
    for given in (x.reshape(5, 9), x[::2], np.array(x[3]), x[:0]):
        for y in (np.array(exponent), np.full((1, 1, 1), exponent), np.full(1, exponent)):
            found = Pow().reference(given, y)
            numbers = np.broadcast_to(given, np.broadcast_shapes(given.shape, y.shape))
            if exponent < 0:
                want = [v**-exponent if v in (1, -1) else 0 for v in numbers.ravel().tolist()]
            else:
                want = [pow(v, exponent, 1 << bits) for v in numbers.ravel().tolist()]
            assert (found.dtype, found.shape) == (given.dtype, numbers.shape)
            assert [v % (1 << bits) for v in found.ravel().tolist()] == [v % (1 << bits) for v in want]
            assert not np.shares_memory(found, given)


@pytest.mark.parametrize("dims", [(5, 3), (5, 3, 2), (5, 3, 2, 2), (5, 0, 2), (0, 3), (5, 3, 0)])
@pytest.mark.parametrize("time_axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "bool", object])
def test_reverse_sequence(rng: np.random.Generator, dims: tuple[int, ...], time_axis: int, dtype: str) -> None:
    dims = dims if time_axis == 0 else (dims[1], dims[0], *dims[2:])
    x = np.asfortranarray(rng.integers(0, 9, dims).astype(dtype))
    steps, batch = dims[time_axis], dims[1 - time_axis]
    lengths = rng.integers(0, steps + 1, batch)
    found = ReverseSequence(time_axis=time_axis, batch_axis=1 - time_axis).reference(x, lengths)
    want = x.copy()
    for at in np.ndindex(*dims):
        step, length = at[time_axis], lengths[at[1 - time_axis]]
        turned = length - 1 - step if step < length else step
        want[at] = x[(turned, *at[1:]) if time_axis == 0 else (at[0], turned, *at[2:])]
    assert (found.dtype, found.shape) == (x.dtype, x.shape)
    np.testing.assert_array_equal(found, want)
