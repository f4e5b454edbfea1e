"""Operators that write into the result, on the devices that let them: small, large and empty inputs, run after run."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import InferError
from dovetail_ops_onnx.abs import Abs
from dovetail_ops_onnx.bitwise_not import BitwiseNot
from dovetail_ops_onnx.eye_like import EyeLike
from dovetail_ops_onnx.gather_elements import GatherElements
from dovetail_ops_onnx.gather_nd import GatherND
from dovetail_ops_onnx.max_unpool import MaxUnpool
from dovetail_ops_onnx.neg import Neg
from dovetail_ops_onnx.one_hot import OneHot
from dovetail_ops_onnx.reverse_sequence import ReverseSequence
from dovetail_ops_onnx.sign import Sign
from dovetail_ops_onnx.tile import Tile
from dovetail_ops_onnx.trilu import Trilu

Array = np.ndarray[Any, Any]
SIZES = [(3, 5), (1, 1), (0, 4), (700, 301)]
"""The last one has inputs that are read where the caller has them."""
DEVICES = ["NUMPY", "ONEDNN"]


def _compiled(device: str, op: Any, *inputs: Array, known: int = 0) -> Callable[..., Array]:
    """A model of one operator, whose last inputs are constants."""
    g = dovetail.GraphBuilder()
    given = len(inputs) - known
    names = [g.input(f"i{n}", str(a.dtype), a.shape) if n < given else g.constant(a) for n, a in enumerate(inputs)]
    y = g.node(op, *names)
    compiled = dovetail.Core(config=False).compile_model(g.model([y]), device)
    return lambda *arrays: compiled({f"i{n}": a for n, a in enumerate(arrays)})[y].copy()


def _reversed(x: Array, lengths: Array) -> Array:
    y = x.copy()
    for b, n in enumerate(lengths):
        y[b, :n] = x[b, :n][::-1]
    return y


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dims", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "int64", "float64", "bool", "float16"])
def test_movements(rng: np.random.Generator, device: str, dims: tuple[int, int], dtype: str) -> None:
    """Each run has its own result."""
    x, lengths = np.zeros(dims, dtype), np.zeros(dims[:1], np.int64)
    triangle, eye = _compiled(device, Trilu(upper=False), x), _compiled(device, EyeLike(k=-1), x)
    tiled = _compiled(device, Tile(), x, np.array([2, 3]), known=1)
    turned = _compiled(device, ReverseSequence(batch_axis=0, time_axis=1), x, lengths)
    places = np.zeros((*dims, 1), np.int64)
    elements, slices = (
        _compiled(device, GatherElements(axis=1), x, places[..., 0]),
        _compiled(device, GatherND(batch_dims=1), x, places),
    )
    for _ in range(2):
        x, lengths = rng.integers(0, 9, dims).astype(dtype), rng.integers(0, dims[1] + 1, dims[0])
        places = rng.integers(-dims[1], dims[1], (*dims, 1))
        np.testing.assert_array_equal(triangle(x), np.tril(x))
        np.testing.assert_array_equal(eye(x), np.eye(*dims, -1, dtype))
        np.testing.assert_array_equal(tiled(x), np.tile(x, (2, 3)))
        np.testing.assert_array_equal(turned(x, lengths), _reversed(x, lengths))
        np.testing.assert_array_equal(elements(x, places[..., 0]), np.take_along_axis(x, places[..., 0] % dims[1], 1))
        np.testing.assert_array_equal(slices(x, places), np.take_along_axis(x, places[..., 0] % dims[1], 1))


@pytest.mark.parametrize("k", [-9, -3, -2, 0, 1, 4, 5, 9])
@pytest.mark.parametrize("dims", [(3, 5), (5, 3), (4, 4), (0, 2), (2, 0)])
def test_diagonals(k: int, dims: tuple[int, int]) -> None:
    y = np.full(dims, 7, np.int16)
    EyeLike(k=k).write(y, y)
    np.testing.assert_array_equal(y, np.eye(*dims, k, np.int16))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint16"])
@pytest.mark.parametrize("dims", SIZES)
def test_integers_in_place(rng: np.random.Generator, device: str, dtype: str, dims: tuple[int, int]) -> None:
    """The input stays as it is; the lowest integer wraps."""
    x = rng.integers(0, 99, dims).astype(dtype)
    if x.size and x.dtype.kind == "i":
        x[0, 0], x[-1, -1] = np.iinfo(dtype).min, -5
    for op, function in ((Abs(), np.abs), (Sign(), np.sign), (BitwiseNot(), np.invert), (Neg(), np.negative)):
        if x.dtype.kind == "i" or not isinstance(op, Neg):
            before = x.copy()
            np.testing.assert_array_equal(_compiled(device, op, x)(x), function(x))
            np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("count", [0, 1, 6])
def test_one_hot_of_indices_outside(rng: np.random.Generator, device: str, axis: int, count: int) -> None:
    indices, values = rng.integers(-9, 9, (4, 7)), np.array([-1, 2], np.float32)
    want = np.stack([np.where((indices == n) | (indices == n - count), 2, -1) for n in range(count)], axis) if count else None
    found = _compiled(device, OneHot(axis=axis), indices, np.array(count), values, known=2)(indices)
    np.testing.assert_array_equal(found, np.empty(found.shape) if want is None else want)
    assert found.size == 28 * count


@pytest.mark.parametrize("device", DEVICES)
def test_places_of_a_larger_result(device: str) -> None:
    x, places = np.array([[[[1, 2], [3, 4]]]], np.float32), np.array([[[[0, 3], [8, 15]]]])
    op = MaxUnpool(kernel_shape=(2, 2), strides=(2, 2))
    want = np.zeros((1, 1, 4, 4), np.float32)
    want.reshape(-1)[[0, 3, 8, 15]] = 1, 2, 3, 4
    np.testing.assert_array_equal(_compiled(device, op, x, places)(x, places), want)
    larger = _compiled(device, op, x, places, np.array([1, 1, 5, 6]), known=1)(x, places)
    np.testing.assert_array_equal(larger, np.pad(want, ((0, 0), (0, 0), (0, 1), (0, 2))))
    for wrong in (16, -1):
        with pytest.raises(InferError, match="places outside 0 to 15"):
            _compiled(device, op, x, places)(x, np.full_like(places, wrong))
