"""Copies of runs as one element each: the same memory, in the same places."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.op import DType
from dovetail_ops_onnx.runs import as_runs

DTYPES = [np.dtype(name) for name in ("uint8", "float16", "float32", "float64", "bool")] + [DType.BFLOAT16.numpy]


def _place(rng: np.random.Generator, shape: tuple[int, ...], forward: bool) -> tuple[list[int], Callable[[Any], Any]]:
    """The shape of larger memory, and a function for a view of it: axes in any order, with gaps, of the source backwards too."""
    order = rng.permutation(len(shape))
    cut = tuple(slice(0, shape[axis]) for axis in order)
    steps = tuple(slice(None, None, 1 if forward else int(rng.choice([1, 1, -1]))) for _ in shape)
    sizes = [shape[axis] + int(rng.integers(0, 2)) * 3 for axis in order]
    return sizes, lambda whole: whole[cut].transpose(np.argsort(order))[steps]


@pytest.mark.parametrize("seed", range(150))
def test_random_views(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.choice([1, 1, 2, 3, 4, 7, 33, 0], rng.integers(1, 5), p=[0.14] * 7 + [0.02]))
    dtype = DTYPES[seed % len(DTYPES)]
    (sizes, source), (larger, place) = _place(rng, shape, forward=False), _place(rng, shape, forward=True)
    src, whole = source(rng.integers(0, 2, sizes).astype(dtype)), rng.integers(0, 2, larger).astype(dtype)
    src.flags.writeable = False
    wanted = whole.copy()
    place(wanted)[...] = src
    np.copyto(*as_runs(place(whole), src))
    assert (whole == wanted).all()


@pytest.mark.parametrize(("count", "length", "as_one"), [(5, 4, True), (5, 32, True), (5, 33, False), (1, 4, False)])
def test_which_runs(count: int, length: int, as_one: bool) -> None:
    whole, src = np.zeros((count, 2 * length), np.float32), np.ones((count, length), np.float32)
    one, other = as_runs(whole[:, length:], src)
    assert (one.dtype.kind == "V") == as_one
    assert one.shape == other.shape == ((count,) if as_one else (count, length))


def test_axes_behind_the_joined_one_are_one_run() -> None:
    whole, src = np.zeros((6, 4, 2, 3), np.float32), np.random.default_rng(1).random((6, 2, 2, 3)).astype(np.float32)
    one, other = as_runs(whole[:, 2:], src)
    assert one.shape == (6,)
    assert one.dtype == other.dtype == np.dtype("V48")
    np.copyto(one, other)
    assert (whole[:, 2:] == src).all()
    assert not whole[:, :2].any()


def test_left_as_they_are() -> None:
    texts = np.full((4, 2), "a", object)
    pairs: list[tuple[Any, Any]] = [(np.empty((4, 4), object)[:, :2], texts), (np.zeros((4, 4)), np.ones(4))]
    for dst, src in [*pairs, (np.zeros((4, 4))[:, :2], np.ones((4, 2), int))]:
        assert all(a is b for a, b in zip(as_runs(dst, src), (dst, src), strict=True))
