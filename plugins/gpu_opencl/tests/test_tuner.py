"""The tuner: it keeps what was fastest and right; tables survive processes and damage."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

from dovetail.cache import FileCache, list_cache
from dovetail.errors import UsageError
from dovetail_gpu_opencl import tuner
from dovetail_gpu_opencl.kernels._pipelined import Pipeline
from dovetail_gpu_opencl.kernels._pointwise_depthwise import Tile
from dovetail_gpu_opencl.kernels._register_tiles import SHAPES
from dovetail_gpu_opencl.kernels._tiles import Tiled, Tiling
from dovetail_gpu_opencl.kernels._tuned import Tuned
from dovetail_gpu_opencl.options import Options
from dovetail_gpu_opencl.tuning import SECTION, Tunings, tunings_of

ROW_KERNELS = ("gemm_rows", "conv_rows", "conv_winograd")
FIRST, SECOND = Tiling(8, 8, 8, 2, 4), Tiling(8, 16, 8, 2, 4)


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only two tilings exist; the model prefers the first."""
    monkeypatch.setattr("dovetail_gpu_opencl.kernels._tiles.tilings", lambda problem, caps: iter((FIRST, SECOND)))
    monkeypatch.setattr("dovetail_gpu_opencl.kernels._tiles.default_tiling", lambda problem, caps: FIRST)


@pytest.fixture
def product(bench: Any, rng: Any) -> Any:
    a, b = rng.standard_normal((9, 12)).astype(np.float32), rng.standard_normal((12, 20)).astype(np.float32)
    return (*bench.single(bench.op("MatMul"), [a, b], (1,)), a.astype(np.float64) @ b)


def fixed_times(monkeypatch: pytest.MonkeyPatch, *times: float) -> None:
    """Each candidate takes the same time whenever it runs; there are as many as there are times."""
    known: dict[int, float] = {}
    left = iter(times)

    def time(self: Any, bound: Any, fastest: float) -> float:
        return known[id(bound)] if id(bound) in known else known.setdefault(id(bound), next(left))

    monkeypatch.setattr(tuner._Bench, "time", time)


@pytest.mark.usefixtures("two")
def test_the_fastest_is_kept_used_and_not_tuned_again(
    kept: Path, without_matrix_units: Callable[[str], Any], bench: Any, product: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, (graph, feeds, expected) = without_matrix_units("GPU"), product
    fixed_times(monkeypatch, 5.0, 3.0)
    np.testing.assert_allclose(bench.run(device, graph, feeds, TUNE=True)[0], expected, rtol=0, atol=1e-5)
    (key,) = tunings_of(device.caps).table()
    assert tunings_of(device.caps).get(key) == SECOND.numbers()
    used: list[Tiling] = []
    inner = Tuned.tiling
    monkeypatch.setattr(Tuned, "tiling", lambda self, problem: used.append(inner(self, problem)) or used[-1])
    bench.run(device, graph, feeds, TUNE=True)  # no times are left: nothing is timed
    assert set(used) == {SECOND}
    later = Tunings(device.caps.identity, device.caps.family, FileCache(SECTION))
    assert later.table() == {key: SECOND.numbers()}
    assert [entry.section for entry in list_cache(kept)].count(SECTION) == 1


@pytest.mark.usefixtures("two", "kept")
def test_a_candidate_whose_result_is_wrong_is_not_kept(
    without_matrix_units: Callable[[str], Any], bench: Any, product: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, (graph, feeds, _) = without_matrix_units("GPU"), product
    inner = tuner._Bench.result
    calls: list[int] = []

    def result(self: Any, bound: Any) -> Any:
        calls.append(1)
        return inner(self, bound) + (1e-3 if len(calls) == 2 else 0)

    monkeypatch.setattr(tuner._Bench, "result", result)
    fixed_times(monkeypatch, 5.0)
    bench.run(device, graph, feeds, TUNE=True)
    assert list(tunings_of(device.caps).table().values()) == [FIRST.numbers()]


@pytest.mark.parametrize(
    ("microseconds", "chosen"), [((5.0, 4.9, None), 0), ((5.0, 4.8, 4.7), 2), ((5.0, None, None), 0), ((4.0, 5.0, 3.0), 2)]
)
def test_the_default_is_kept_unless_another_is_clearly_faster(microseconds: tuple[float | None, ...], chosen: int) -> None:
    timings = [tuner.Timing(Tiling(8, 8, 8, 2, 4, splits=i + 1), t) for i, t in enumerate(microseconds)]
    assert tuner.winner(timings) is timings[chosen]


def test_finalists_run_again_in_turn(
    kind_device: Callable[[str], Any], bench: Any, product: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least of all times counts: the second is faster when it runs for the third time."""
    from dovetail.device import TypedNode

    device, (graph, _, _) = kind_device("GPU"), product
    node = TypedNode.of(graph.nodes[0], graph)
    kernel = next(k for k in device.kernels(node) if isinstance(k, Tiled))
    order: list[int] = []

    def time(self: Any, bound: Any, fastest: float) -> float:
        order.append(id(bound))
        return 2.0 if order.count(id(bound)) == 3 and id(bound) == order[1] else 5.0

    monkeypatch.setattr(tuner._Bench, "time", time)
    timings = tuner.measure(device._context, device._device, device.programs, kernel, node, [FIRST, SECOND])
    assert [t.microseconds for t in timings] == [5.0, 2.0]
    assert order == [*order[:2]] * 4


def test_time_between_launches_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two launches of 7 and 5 us with a pause of the host between them that differs from run to run."""
    spans = iter([(0, 7000), (90000, 95000), (200000, 207000), (210000, 215000), (300000, 307000), (307000, 312000)])

    def enqueue(*_: Any) -> Any:
        start, end = next(spans)
        return SimpleNamespace(profile=SimpleNamespace(start=start, end=end))

    monkeypatch.setattr(tuner, "_REPEATS", 3)
    monkeypatch.setattr(tuner.cl, "enqueue_nd_range_kernel", enqueue)
    bench = tuner._Bench.__new__(tuner._Bench)
    bench._queue = SimpleNamespace(finish=lambda: None)
    launch = SimpleNamespace(global_size=(1,), local_size=(1,))
    assert bench.time([(None, launch), (None, launch)], np.inf) == 7 + 5 + tuner._LAUNCH


def test_times_are_positive_and_a_result_that_no_launch_wrote_is_wrong(
    kind_device: Callable[[str], Any], bench: Any, product: Any
) -> None:
    from dovetail.device import TypedNode

    device, (graph, _, _) = kind_device("GPU"), product
    node = TypedNode.of(graph.nodes[0], graph)
    kernel = next(k for k in device.kernels(node) if isinstance(k, Tiled))
    (timing,) = tuner.measure(device._context, device._device, device.programs, kernel, node, [FIRST])
    assert timing.microseconds is not None
    assert timing.microseconds > 0
    poisoned = tuner._Bench(device._context, device._device, node, tuner._data(node))
    marker = poisoned.result([])
    assert np.isnan(marker).all()
    assert not tuner._alike(marker, np.zeros_like(marker))
    assert tuner._alike(marker, marker)


@pytest.mark.parametrize("dtype", [np.float16, bfloat16])
def test_results_in_halves_may_differ_by_a_rounding(dtype: Any) -> None:
    """Candidates add in other orders; a result of another problem is wrong."""
    found = np.linspace(1, 2, 7).astype(dtype)
    assert tuner._alike(np.nextafter(found, np.array(3, dtype)), found)
    assert not tuner._alike(found[::-1], found)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"p": "x", "q": [1.5], "r": []}', b"\xff"])
def test_damaged_tables_are_empty(content: bytes, kept: Path) -> None:
    cache = FileCache(SECTION, kept)
    table = Tunings("device", "nobody", cache)
    cache.put(table._key, content)
    again = Tunings("device", "nobody", cache)
    assert again.table() == {}
    again.put("p", [1, 2])
    assert Tunings("device", "nobody", cache).table() == {"p": [1, 2]}


def test_processes_merge_what_they_find(kept: Path) -> None:
    cache = FileCache(SECTION, kept)
    one, other = Tunings("device", "nobody", cache), Tunings("device", "nobody", cache)
    one.put("p", [1])
    other.put("q", [2])
    assert Tunings("device", "nobody", cache).table() == {"p": [1], "q": [2]}


def test_numbers_that_do_not_fit_are_left_alone(kind_device: Callable[[str], Any], bench: Any, product: Any, kept: Path) -> None:
    from dovetail.device import TypedNode

    device, (graph, _, _) = kind_device("GPU"), product
    node = TypedNode.of(graph.nodes[0], graph)
    kernel = next(k for k in device.kernels(node) if isinstance(k, Tiled))
    problem = kernel.problem(node)
    assert problem is not None
    default = kernel.tiling(problem)
    for numbers in ([1], [3, 3, 3, 3, 3, 3, 3, 3, 0], [1024, 1024, 16, 8, 8, 1, 1, 2, 0]):
        tunings_of(device.caps).put(problem.key, numbers)
        assert kernel.tiling(problem) == default


@pytest.mark.usefixtures("two", "kept")
def test_kernels_are_compared_by_the_cost_model_alone(
    without_matrix_units: Callable[[str], Any], bench: Any, product: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tuned tiling, which is faster, may seem to cost more: that must not make another kernel take the node."""
    from dovetail.device import TypedNode

    device, (graph, _, _) = without_matrix_units("GPU"), product
    node = TypedNode.of(graph.nodes[0], graph)
    kernel = next(k for k in device.kernels(node) if isinstance(k, Tiled))
    problem = kernel.problem(node)
    assert problem is not None
    monkeypatch.setattr(Tiled, "cost", lambda self, problem, tiling: 9.0 if tiling == SECOND else 1.0)
    tunings_of(device.caps).put(problem.key, SECOND.numbers())
    assert kernel.tiling(problem) == SECOND
    assert kernel.least(problem) == 1.0
    assert kernel.using(SECOND).least(problem) == 9.0


def test_shipped_tables_hold_tilings_that_the_kernels_can_run() -> None:
    tables = sorted((Path(tuner.__file__).parent / "tuned").glob("*.json"))
    assert tables
    for file in tables:
        content = json.loads(file.read_text(encoding="utf-8"))
        assert content["device"]
        rows = {key: numbers for key, numbers in content["tilings"].items() if key.split()[0] in ROW_KERNELS}
        assert bool(rows) == file.name.startswith("pocl-")
        for rows_and_vectors in rows.values():
            assert tuple(rows_and_vectors[:2]) in SHAPES
            assert rows_and_vectors[2] in (0, 1)
        kinds = {key: key.split()[0] for key in content["tilings"]}
        pipelined = {key: content["tilings"][key] for key, kind in kinds.items() if "_pipelined" in kind or kind == "bytes"}
        for pipeline in {Pipeline(*numbers) for numbers in pipelined.values()}:
            assert pipeline.items <= 1024
            assert pipeline.local_bytes() <= 48 * 1024
            assert pipeline.tile_m % pipeline.work_m == pipeline.tile_n % pipeline.work_n == 0
        joined = {key: Tile(*content["tilings"][key]) for key, kind in kinds.items() if kind == "pointwise_depthwise"}
        assert all(tile.slice % 4 == 0 and 0 < tile.items <= 1024 and tile.tile_y * tile.tile_x for tile in joined.values())
        other = content["tilings"].keys() - rows.keys() - pipelined.keys() - joined.keys()
        for tiling in {Tiling(*content["tilings"][key]) for key in other}:
            assert tiling.items <= 1024
            assert tiling.tile_k % tiling.slices == 0
            assert tiling.tile_m % tiling.work_m == tiling.tile_n % tiling.work_n == 0


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_the_option_is_a_bool(value: object) -> None:
    with pytest.raises(UsageError, match="TUNE"):
        Options.read({"TUNE": value})


def test_a_table_keeps_what_its_folder_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`benchmarks/opencl_tune.py --out`: problems of an earlier run stay, also where the package has a table."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[3] / "benchmarks"))
    tables = importlib.import_module("_tables")

    def problem(key: str) -> dict[str, Any]:
        return {"key": key, "kernel": "gemm", "model": [1, 2], "best": [1, 2], "times": [[[1, 2], 5.0]]}

    for key in ("gemm/first", "gemm/second"):
        line = {"task": key, "precision": "float32", "problems": [problem(key)]}
        monkeypatch.setattr(tables, "all_measured", lambda *_, line=line: [line])
        assert not tables.report("OPENCL.0", [key], 1, 60.0, tmp_path, None)
    (file,) = tmp_path.iterdir()
    assert {"gemm/first", "gemm/second"} <= json.loads(file.read_text())["tilings"].keys()
