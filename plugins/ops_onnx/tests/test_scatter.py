"""Reductions of ScatterElements and ScatterND, update by update, and GatherElements at the same places."""

import math
from typing import Any

import numpy as np
import pytest

import dovetail
import dovetail_ops_onnx._scatter as module
from dovetail.errors import InferError
from dovetail.op import OperatorError
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


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("rows", [700, 3])
def test_many_rows(rng: np.random.Generator, reduction: str, dtype: str, rows: int) -> None:
    """Enough updates for rounds of all rows, and rows with too many updates for them: the bits of one update after the other."""
    data = rng.uniform(-2, 2, (rows, 33)).astype(dtype)
    indices = rng.integers(-rows, rows, (1800, 1)) // 2
    updates = rng.uniform(-2, 2, (1800, 33)).astype(dtype)
    if dtype != "int32":
        updates[::50, ::7], updates[::60, 1::7] = np.inf, np.nan
    join = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
    want = data.copy()
    with np.errstate(all="ignore"):
        for row, update in zip(indices[:, 0], updates, strict=True):
            want[row] = join(want[row], update)
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


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("kind", ["ScatterND", "ScatterElements"])
def test_updates_are_written_in_place_after_a_copy(rng: np.random.Generator, device: str, kind: str) -> None:
    """Two in a row: the first copies the input, the second writes into the first one's result unless that is asked for, too."""
    op: Any = ScatterND() if kind == "ScatterND" else ScatterElements(axis=1)
    shapes = ((4, 2), (4, 3)) if kind == "ScatterND" else ((5, 2, 3), (5, 2, 3))
    for both in (False, True):
        g = dovetail.GraphBuilder()
        data, first, second = (
            g.input("data", "float32", (5, 6, 3)),
            g.input("i", "int64", shapes[0]),
            g.input("j", "int64", shapes[0]),
        )
        updates = g.input("u", "float32", shapes[1])
        once = g.node(op, data, first, updates, outputs=["once"])
        twice = g.node(op, once, second, updates, outputs=["twice"])
        with dovetail.Core().compile_model(g.model([once, twice] if both else [twice]), device) as compiled:
            assert [node.kernel for node in compiled.report().nodes] == ["in_data"] * 2
            for _ in range(2):
                x, u = rng.standard_normal((5, 6, 3)).astype(np.float32), rng.standard_normal(shapes[1]).astype(np.float32)
                i, j = (rng.integers(-5, 5, shapes[0]) for _ in range(2))
                given = x.copy()
                found = compiled({"data": given, "i": i, "j": j, "u": u})
                np.testing.assert_array_equal(given, x)
                after = op.reference(x, i, u)
                np.testing.assert_array_equal(found["twice"], op.reference(after, j, u))
                if both:
                    np.testing.assert_array_equal(found["once"], after)
            with pytest.raises(InferError, match=r"Scatter.*index 9 .*is outside axis"):
                compiled({"data": x, "i": i, "j": np.full_like(j, 9), "u": u})
            np.testing.assert_array_equal(compiled({"data": x, "i": i, "j": j, "u": u})["twice"], found["twice"])


@_every_reduction
@pytest.mark.parametrize("part", [1, 40, 1 << 14])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_messages_of_a_graph(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, reduction: str, part: int, kind: Any
) -> None:
    """Whole rows that go to a place, many of them to one: bit by bit, in order, by both operators."""
    monkeypatch.setattr(module, "_PART", part)
    data, updates = (rng.uniform(-2, 2, (rows, 3, 7)).astype(np.float32) for rows in (30, 400))
    nodes = np.where(rng.random(400) < 0.2, 4, rng.integers(-30, 30, 400)).astype(kind)
    want = data.copy()
    for node, update in zip(nodes, updates, strict=True):
        want[node] = np.vectorize(_JOIN[reduction], otypes=[np.float32])(want[node], update)
    indices = np.broadcast_to(nodes[:, None, None], updates.shape)
    np.testing.assert_array_equal(ScatterElements(reduction=reduction).reference(data, indices, updates), want)
    np.testing.assert_array_equal(ScatterElements(axis=-3, reduction=reduction).reference(data, indices.copy(), updates), want)
    found = ScatterND(reduction=reduction).reference(data, nodes[:, None].astype(np.int64), updates)
    np.testing.assert_array_equal(found, want)


def test_one_element_that_goes_to_another_row(rng: np.random.Generator) -> None:
    data, updates = (rng.uniform(-2, 2, (rows, 4)).astype(np.float32) for rows in (3, 5))
    indices = np.repeat(rng.integers(0, 2, (5, 1)), 4, axis=1)
    indices[3, 2] = 2
    want = data.copy()
    for (row, column), node in np.ndenumerate(indices):
        want[node, column] += updates[row, column]
    np.testing.assert_array_equal(ScatterElements(reduction="add").reference(data, indices, updates), want)


def test_rows_out_of_range_are_refused(rng: np.random.Generator) -> None:
    with pytest.raises(OperatorError, match="accepted"):
        ScatterElements(reduction="add").reference(np.zeros((3, 2)), np.full((1, 2), 3), np.zeros((1, 2)))


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_rows_that_are_met_once(rng: np.random.Generator, reduction: str) -> None:
    """Also counted from the end; -1 and the last row are one place."""
    data, updates = (rng.uniform(-2, 2, (rows, 5)).astype(np.float32) for rows in (9, 6))
    for rows in ([7, -9, 3, -1, 5, 1], [7, -9, 3, -1, 5, 8]):
        want = data.copy()
        for row, update in zip(rows, updates, strict=True):
            want[row] = np.vectorize(_JOIN[reduction], otypes=[np.float32])(want[row], update)
        found = ScatterND(reduction=reduction).reference(data, np.array(rows)[:, None], updates)
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("end", [1, 1 << 16, 1 << 17, 1 << 40])
def test_order_of_integers(rng: np.random.Generator, end: int) -> None:
    """Stable, by 16 bits at a time."""
    keys = rng.integers(0, end, 3000) // 3
    np.testing.assert_array_equal(module.order_of(keys), sorted(range(3000), key=keys.tolist().__getitem__))
    assert module.order_of(keys[:0]).size == 0
