"""Reductions of ScatterElements and ScatterND whose updates a work group joins, against one after the other in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.errors import InferError
from dovetail_ops_onnx.scatter_elements import ScatterElements
from dovetail_ops_onnx.scatter_nd import ScatterND

JOINS: dict[str, Callable[[Any, Any], Any]] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@pytest.mark.exhaustive(0.3)  # each compiles programs
@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize(
    ("reduction", "size"), [("add", 15), ("add", 16), ("add", 700), ("add", 4500), ("mul", 40), ("max", 257), ("min", 300)]
)
def test_elements_of_a_long_line(
    reduction: str, size: int, dtype: Any, kind: str, kind_device: Callable[[str], Any], bench: Any, rng: np.random.Generator
) -> None:
    """Few places, so that most updates meet others of their block and of the blocks before."""
    data, updates = (_drawn(rng, dtype, dims) for dims in ((9, 3), (size, 3)))
    index = rng.integers(-9, 9, (size, 3))
    wanted = data.astype(np.float64)
    for row in range(size):
        for column in range(3):
            at = index[row, column], column
            wanted[at] = JOINS[reduction](wanted[at], float(updates[row, column]))
    graph, feeds = bench.single(ScatterElements(axis=0, reduction=reduction), [data, index, updates])
    (found,) = bench.run(kind_device(kind), graph, feeds)
    np.testing.assert_allclose(found, wanted.astype(dtype), rtol=1e-3 if dtype == np.float16 else 1e-5, atol=1e-5)


@pytest.mark.parametrize(("kind", "count", "inner"), [("GPU", 5, 6), ("GPU", 290, 6), ("CPU", 40, 6), ("CPU", 40, 130)])
def test_slices_that_meet(
    kind: str, count: int, inner: int, kind_device: Callable[[str], Any], bench: Any, rng: np.random.Generator
) -> None:
    data, updates = (_drawn(rng, np.float32, dims) for dims in ((4, 5, inner), (count, inner)))
    index = rng.integers(-4, 4, (count, 2))
    wanted = data.astype(np.float64)
    for (a, b), update in zip(index, updates, strict=True):
        wanted[a, b] += update
    graph, feeds = bench.single(ScatterND(reduction="add"), [data, index, updates])
    np.testing.assert_allclose(bench.run(kind_device(kind), graph, feeds)[0], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.exhaustive(0.4)  # each compiles programs
@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize(("places", "size", "inner"), [(100, 3000, 7), (700, 4500, 1), (40, 900, 150)])
def test_rows_of_constant_indices(
    places: int, size: int, inner: int, dtype: Any, kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    """A work group joins the updates of some places; a quarter of the updates go to one."""
    data, updates = (_drawn(rng, dtype, dims) for dims in ((places, inner), (size, inner)))
    rows = np.where(rng.random(size) < 0.25, -3, rng.integers(-places, places, size))
    wanted = data.astype(np.float64)
    for row, update in zip(rows, updates, strict=True):
        wanted[row] += update
    index = np.repeat(rows[:, None], inner, 1)
    graph, feeds = bench.single(ScatterElements(axis=0, reduction="add"), [data, index, updates], (1,))
    (found,) = bench.run(kind_device(kind), graph, feeds)
    np.testing.assert_allclose(found, wanted.astype(dtype), rtol=1e-3 if dtype == np.float16 else 1e-5, atol=1e-5)


CONSTANT = [("ScatterElements", 1), ("ScatterElements", 0), ("ScatterND", 2), ("ScatterND", 3)]


@pytest.mark.exhaustive(0.3)  # each compiles programs
@pytest.mark.parametrize("kind", ["CPU", "GPU"])
@pytest.mark.parametrize("reduction", ["none", *JOINS])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize(("name", "detail"), CONSTANT, ids=lambda x: str(x))
def test_updates_of_constant_places_are_one_launch(
    name: str, detail: int, dtype: Any, reduction: str, kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    """One after the other in their order; of several that replace a place the last one stays."""
    join = JOINS.get(reduction, lambda _, b: b)
    data = _drawn(rng, dtype, (4, 3, 5))
    wanted = data.astype(np.float64)
    if name == "ScatterElements":
        index, op = rng.integers(-3, 3, (4, 3, 4)), ScatterElements(axis=detail, reduction=reduction)
        updates = _drawn(rng, dtype, index.shape)
        for place in np.ndindex(index.shape):
            at = (*place[:detail], index[place], *place[detail + 1 :])
            wanted[at] = join(wanted[at], float(updates[place]))
    else:
        index, op = rng.integers(-3, 3, (17, detail)), ScatterND(reduction=reduction)
        updates = _drawn(rng, dtype, (17, *data.shape[detail:]))
        for place, update in zip(index, updates, strict=True):
            wanted[tuple(place)] = join(wanted[tuple(place)], update.astype(np.float64))
    graph, feeds = bench.single(op, [data, index, updates], (1,))
    executable = kind_device(kind).compile(graph, {})
    assert [command.launch.entry for command in executable.commands] == ["scatter_listed"]
    (found,) = executable.create_request().run(feeds)
    np.testing.assert_allclose(found, wanted.astype(dtype), rtol=2e-3 if dtype == np.float16 else 1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_constant_places_with_another_first_dimension(kind: str, kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """The places of the same constant indices are listed again: each line of the last axis has some, however many lines."""
    device, index, updates = kind_device(kind), np.array([[2, 1]]), np.array([[0.5, 4]], np.float32)
    for rows in (3, 1, 500, 3):
        data = _drawn(rng, np.float32, (rows, 4))
        wanted = data.copy()
        wanted[0, index[0]] = updates[0]
        graph, feeds = bench.single(ScatterElements(axis=1), [data, index, updates], (1,))
        graph = graph.replace(constants=dict.fromkeys(graph.constants, index))  # one array, as of one model
        executable = device.compile(graph, {})
        assert [command.launch.entry for command in executable.commands] == ["scatter_listed"]
        np.testing.assert_array_equal(executable.create_request().run(feeds)[0], wanted)


def test_constant_places_that_are_out_of_range_or_met_too_often(kind_device: Callable[[str], Any], bench: Any, rng: Any) -> None:
    """The first is an error of the run, as where the index is an input; the second is joined by work groups."""
    data, updates = _drawn(rng, np.float32, (7, 2)), _drawn(rng, np.float32, (300, 2))
    index = np.zeros((300, 1), np.int64)
    for last in (0, 7, -8):
        index[-1] = last
        graph, feeds = bench.single(ScatterND(reduction="add"), [data, index, updates], (1,))
        executable = kind_device("GPU").compile(graph, {})
        assert "scatter_listed" not in [command.launch.entry for command in executable.commands]
        if last:
            with pytest.raises(InferError, match="out of range"):
                executable.create_request().run(feeds)


def _drawn(rng: np.random.Generator, dtype: Any, dims: tuple[int, ...]) -> Any:
    """Factors near one, so that products stay small."""
    return rng.integers(-3, 4, dims).astype(dtype) if dtype == np.int32 else rng.uniform(0.9, 1.1, dims).astype(dtype)


@pytest.mark.exhaustive(0.4)  # each compiles programs
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8])
@pytest.mark.parametrize(("rows", "count", "columns"), [(7, 40, 3), (3, 1, 1), (300, 700, 5), (2000, 500, 8)])
def test_the_last_update_of_a_place_wins(
    rows: int, count: int, columns: int, dtype: Any, kind_device: Callable[[str], Any], bench: Any, rng: Any
) -> None:
    """Small ones by one work group, the last by a launch for each step."""
    device = kind_device("GPU")
    data, updates = (_drawn(rng, dtype, dims) for dims in ((rows, columns), (count, columns)))
    index, places = rng.integers(-rows, rows, (count, columns)), rng.integers(-rows, rows, (count, 1))
    wanted, sliced = data.copy(), data.copy()
    for row in range(count):
        sliced[places[row, 0]] = updates[row]
        wanted[index[row], np.arange(columns)] = updates[row]
    for op, at, expected in ((ScatterElements(axis=0), index, wanted), (ScatterND(), places, sliced)):
        graph, feeds = bench.single(op, [data, at, updates])
        np.testing.assert_array_equal(bench.run(device, graph, feeds)[0], expected)
        entries = [command.launch.entry for command in device.compile(graph, {}).commands]
        assert entries == (["scatter_at_once"] if rows < 2000 else ["scatter_start", "scatter_claim", "scatter_put"])
    graph, feeds = bench.single(ScatterElements(axis=0), [data, np.full_like(index, rows), updates])
    with pytest.raises(InferError, match="an index is out of range"):
        bench.run(device, graph, feeds)
