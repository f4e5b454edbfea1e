"""Gathering and scattering whole rows, each of which is moved as one element: all types, layouts and ways to name a row."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dovetail.op import OperatorError
from dovetail_ops_onnx import _scatter
from dovetail_ops_onnx.gather_elements import GatherElements
from dovetail_ops_onnx.gather_nd import GatherND
from dovetail_ops_onnx.scatter_elements import ScatterElements
from dovetail_ops_onnx.scatter_nd import ScatterND

TYPES = ["bool", "int8", "uint16", "float16", "float32", ">f4", "int64", "complex128", "object", ml_dtypes.bfloat16]


def _values(rng: np.random.Generator, dtype: Any, *shape: int) -> np.ndarray[Any, Any]:
    whole = rng.integers(0, 99, shape)
    return whole.astype(str).astype(object) if dtype == "object" else whole.astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("dims", [(40, 6, 64), (1, 9, 700), (3, 300, 3)])
def test_rows_of_every_type(rng: np.random.Generator, dtype: Any, dims: tuple[int, int, int]) -> None:
    """Along the middle axis, from arrays that are read-only and not contiguous."""
    outer, rows, size = dims
    data, updates = _values(rng, dtype, *dims)[:, ::-1], _values(rng, dtype, outer, 2 * rows, size)[:, ::2]
    nodes = rng.integers(-rows, rows, (outer, rows))
    indices = np.broadcast_to(nodes[..., None], dims)
    for array in (data, updates, indices):
        array.flags.writeable = False
    want, gathered = data.copy(), np.empty_like(data)
    for o, r in np.ndindex(outer, rows):
        want[o, nodes[o, r]], gathered[o, r] = updates[o, r], data[o, nodes[o, r]]
    places = np.stack([np.broadcast_to(np.arange(outer)[:, None], nodes.shape), nodes], -1)
    for kept in (indices, indices.copy(), indices.astype(np.int32)):
        np.testing.assert_array_equal(ScatterElements(axis=1).reference(data, kept, updates), want)
        np.testing.assert_array_equal(GatherElements(axis=-2).reference(data, kept), gathered)
    np.testing.assert_array_equal(ScatterND().reference(data, places, updates), want)
    np.testing.assert_array_equal(GatherND().reference(data, places), gathered)
    np.testing.assert_array_equal(GatherND(batch_dims=1).reference(data, nodes[..., None]), gathered)


def test_one_element_of_another_row(rng: np.random.Generator) -> None:
    """The last of many indices differs from its row."""
    data, indices = rng.standard_normal((50, 60)), np.repeat(rng.integers(0, 49, (50, 1)), 60, 1)
    indices[-1, -1] = 49
    np.testing.assert_array_equal(GatherElements().reference(data, indices), np.take_along_axis(data, indices, 0))
    want = data.copy()
    for row, column in np.ndindex(indices.shape):
        want[indices[row, column], column] = data[row, column]
    np.testing.assert_array_equal(ScatterElements().reference(data, indices, data), want)


@pytest.mark.parametrize("place", [(0, 5), (2, 0), (0, -6), (-3, 0)])
def test_coordinates_out_of_range(place: tuple[int, int]) -> None:
    """The error names the index and the axis, also behind negative indices."""
    indices, axis = np.array([[-1, -1], place]), int(not -2 <= place[0] < 2)
    wrong = rf"index {place[1 - axis]} \(at \[1\] .* is outside axis {1 - axis} of size"
    with pytest.raises(OperatorError, match=wrong):
        GatherND().reference(np.zeros((2, 5, 3)), indices)
    with pytest.raises(OperatorError, match=wrong):
        ScatterND().reference(np.zeros((2, 5)), indices, np.zeros(2))
    with pytest.raises(OperatorError, match=r"is outside axis 1 of size 5"):
        GatherND(batch_dims=1).reference(np.zeros((1, 5)), np.full((1, 1, 1), 5))


@pytest.mark.parametrize("dims", [(0, 3), (3, 0), (0, 0)])
def test_nothing_to_move(dims: tuple[int, int]) -> None:
    data, none = np.zeros(dims, np.float32), np.zeros((0, 1), np.int64)
    assert ScatterND().reference(data, none, np.zeros((0, dims[1]), np.float32)).shape == dims
    assert GatherND().reference(data, none).shape == (0, dims[1])
    assert GatherElements().reference(data, np.zeros((0, dims[1]), np.int64)).shape == (0, dims[1])


def test_rows_too_large_for_an_element(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy has no elements of 2 GiB: such rows are moved element by element."""
    with pytest.raises(ValueError, match="itemsize"):
        np.dtype((np.void, _scatter._LARGEST + 1))
    monkeypatch.setattr(_scatter, "_LARGEST", 7)  # rows of 2 GiB would take 4 GiB of memory
    data, updates = np.zeros((3, 2), np.float32), np.float32([[1, 2], [3, 4], [5, 6]])
    found = ScatterND().reference(data, np.array([[2], [0], [2]]), updates)
    np.testing.assert_array_equal(found, [[3, 4], [0, 0], [5, 6]])


@pytest.mark.parametrize("dtype", ["float32", "object"])
def test_the_last_update_of_a_place_counts_in_any_order_of_memory(rng: np.random.Generator, dtype: Any) -> None:
    indices, updates = rng.integers(0, 3, (7, 8, 2)), _values(rng, dtype, 7, 8)
    want = _values(rng, dtype, 3, 3)
    data = want.copy()
    for at in np.ndindex(7, 8):
        want[tuple(indices[at])] = updates[at]
    for given in (indices, np.asfortranarray(indices)):
        np.testing.assert_array_equal(ScatterND().reference(data, given, updates), want)
