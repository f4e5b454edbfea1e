"""Reductions of ScatterElements and ScatterND, update by update, and GatherElements at the same places."""

import math
from typing import Any

import numpy as np
import pytest

from dovetail_ops_onnx.gather_elements import GatherElements
from dovetail_ops_onnx.scatter_elements import ScatterElements
from dovetail_ops_onnx.scatter_nd import ScatterND

_JOIN: dict[str, Any] = {
    "none": lambda _, update: update,
    "add": lambda element, update: element + update,
    "mul": lambda element, update: element * update,
    "max": max,
    "min": min,
}
_every_reduction = pytest.mark.parametrize("reduction", _JOIN)


@_every_reduction
@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize(("depth", "count"), [(1, 40), (2, 40), (2, 3), (3, 60), (2, 0)])
def test_scatter_nd(rng: np.random.Generator, reduction: str, dtype: str, depth: int, count: int) -> None:
    """Places that many updates share, in an order that shows in the bits, and negative ones."""
    sizes = (4, 3, 5)
    data = rng.uniform(0.5, 2, sizes).astype(dtype)
    indices = np.stack([rng.integers(-size, size, (count, 2)) for size in sizes[:depth]], -1)
    updates = rng.uniform(-2, 2, (count, 2, *sizes[depth:])).astype(dtype)
    for array in (data, indices, updates):
        array.flags.writeable = False
    want = data.copy()
    for at in np.ndindex(count, 2):
        place = tuple(indices[at])
        for inner in np.ndindex(*sizes[depth:]):
            want[(*place, *inner)] = _JOIN[reduction](want[(*place, *inner)], updates[(*at, *inner)])
    np.testing.assert_array_equal(ScatterND(reduction=reduction).reference(data, indices, updates), want)


@_every_reduction
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("dims", [(3, 4, 5), (2, 4, 3), (3, 1, 5), (1, 2, 1)])
def test_elements(rng: np.random.Generator, reduction: str, axis: int, dims: tuple[int, ...]) -> None:
    data = np.asfortranarray(rng.uniform(0.5, 2, (3, 4, 5)).astype(np.float32))
    indices = rng.integers(-data.shape[axis], data.shape[axis], dims).astype(np.int32)
    updates = rng.uniform(-2, 2, dims).astype(np.float32)
    want, gathered = data.copy(), np.zeros(dims, np.float32)
    for at in np.ndindex(*dims):
        place = list(at)
        place[axis] = int(indices[at])
        gathered[at] = data[tuple(place)]
        want[tuple(place)] = _JOIN[reduction](want[tuple(place)], updates[at])
    got = ScatterElements(axis=axis, reduction=reduction).reference(data, indices, updates)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(GatherElements(axis=axis).reference(data, indices), gathered)


def test_narrow_floats_are_rounded_once() -> None:
    data, indices = np.zeros((1, 2), np.float16), np.zeros((3, 1), np.int64)
    updates = np.float16([[2048, 0], [1, 0], [1, 0]])
    np.testing.assert_array_equal(ScatterND(reduction="add").reference(data, indices, updates), [[math.fsum((2048, 1, 1)), 0]])
