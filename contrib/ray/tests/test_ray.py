"""On a cluster of two nodes on this machine: files and datasets, bad rows, other nodes, workers and drivers that are killed."""

import json
import os
import signal
import site
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import dovetail
import dovetail_ray
from dovetail.errors import InferError, PluginIncompatible, UsageError

pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.filterwarnings("ignore")]  # they are Ray's

LONG = pytest.mark.exhaustive(0.5)
"""Of the two tests that take the longest one a commit."""

W, B = np.array([[1, -1], [2, 0], [0, 3]], np.float64), np.array([0.5, -4])

WRONG = {
    "{": "the line is not a row in JSON: Expecting property name",
    '{"x": [1, 2]}': "input 'x' has the shape [2] in this row; accepted: a row of float32[N, 3]",
    '{"x": "no"}': "input 'x' is 'no'; accepted: a row of float32[N, 3]",
    '{"x": [NaN, 1, 2]}': "input 'x' has NaN, which is refused",
}


def expected(x: Any) -> Any:
    return np.maximum(np.asarray(x, np.float64) @ W + B, 0)


def lines(path: Path, rows: int, wrong: dict[int, str] | None = None) -> list[Any]:
    """JSON lines of random rows and their number, some of them replaced; returns the rows."""
    x: list[Any] = np.random.default_rng(rows).standard_normal((rows, 3)).round(3).tolist()
    path.write_text("\n".join((wrong or {}).get(i) or json.dumps({"x": row, "id": i}) for i, row in enumerate(x)))
    return x


def rows_of(folder: Path) -> dict[int, Any]:
    """source_row -> the row, of all parts of an output. Fails when a row is there twice."""
    rows = [row for part in sorted(folder.glob("part-*.parquet")) for row in pq.read_table(part).to_pylist()]
    found = {row["source_row"]: row for row in rows}
    assert len(found) == len(rows)
    return found


@LONG
def test_files_in_blocks_with_bad_rows_and_again(linear: Path, tmp_path: Path) -> None:
    wrong = dict(zip((3, 8, 30, 31), WRONG, strict=True))
    x = lines(tmp_path / "in.jsonl", 40, wrong)
    advanced: list[tuple[int, int]] = []

    def run(**others: Any) -> Any:
        arguments = {"to": "parquet", "block_rows": 8, "keep": ["id"], "refuse_nan": True, "batch_size": 3, "workers": 2}
        advance = {"advance": lambda rows, total: advanced.append((rows, total))}
        return dovetail_ray.map_files(
            tmp_path / "in.jsonl", tmp_path / "out", linear, "NUMPY", **{**arguments, **advance, **others}
        )

    summary = run()
    assert (summary.rows, summary.errors, summary.blocks, summary.resumed) == (40, 4, 5, 0)
    assert sum(worker.rows for worker in summary.workers) == 40
    assert advanced[0] == (0, 40)
    assert sum(rows for rows, _ in advanced) == 40
    rows = rows_of(tmp_path / "out")
    assert {*rows} == {*range(40)}
    for number, text in wrong.items():
        assert (rows[number]["y"], rows[number]["error_code"]) == (None, "DT401")
        assert rows[number]["error_message"].startswith(WRONG[text])
    good = [number for number in rows if number not in wrong]
    np.testing.assert_allclose([rows[number]["y"] for number in good], expected(x)[good], rtol=1e-5, atol=1e-6)
    assert [rows[number]["id"] for number in good] == good
    assert {(row["source_file"], row["error_message"]) for row in map(rows.get, good)} == {(str(tmp_path / "in.jsonl"), None)}

    (tmp_path / "out" / "part-000002.parquet").rename(tmp_path / "out" / ".part-000002.parquet.1.ab")  # its worker was killed
    again = run()
    assert (again.rows, again.errors, again.resumed) == (40, 4, 4)
    assert not [*(tmp_path / "out").glob(".*")]
    assert rows_of(tmp_path / "out") == rows
    with pytest.raises(UsageError, match="has the output of another job: it differs in batch_size"):
        run(batch_size=5)
    with pytest.raises(InferError, match=r"row 3: .*\(DT401\)"):
        run(batch_size=5, overwrite=True, errors="raise", workers=1)


def test_the_command(linear: Path, tmp_path: Path, invoke: Any, invoke_json: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dovetail_ray.shipping import check_nodes

    def check_and_print(*arguments: Any) -> None:
        print("(raylet) A worker died")  # as Ray does, which must not be mixed with the JSON
        check_nodes(*arguments)

    monkeypatch.setattr("dovetail_ray.files.check_nodes", check_and_print)
    x = lines(tmp_path / "in.jsonl", 10, {4: "{"})
    out = tmp_path / "out"
    described = invoke_json("map", linear, tmp_path / "in.jsonl", "-o", out, "-d", "NUMPY", "--block", 4, "--to", "npz")
    assert {key: described[key] for key in ("rows", "errors", "blocks", "resumed")} == {
        "rows": 10, "errors": 1, "blocks": 3, "resumed": 0,
    }  # fmt: skip
    (worker,) = described["workers"]
    assert (worker["rows"], worker["blocks"]) == (10, 3)
    with np.load(out / "part-000000.npz") as part:
        np.testing.assert_allclose(part["y"], expected(x)[:4], rtol=1e-5, atol=1e-6)
    shown = invoke("map", linear, tmp_path / "in.jsonl", "-o", out, "-d", "NUMPY", "--block", 4, "--to", "npz").output
    assert "10 rows in 3 blocks, 1 errors" in shown
    assert "(3 blocks were there)" in shown
    assert (
        "no input 'z'" in invoke("map", linear, tmp_path / "in.jsonl", "-o", tmp_path / "no", "--columns", "z=x", code=1).output
    )


def test_a_dataset(linear: Path) -> None:
    import ray

    x = np.random.default_rng(1).standard_normal((20, 3)).astype(np.float32)
    cells = [*x.tolist()[:10], [1.0, 2.0], *x.tolist()[11:]]
    dataset = ray.data.from_items([{"x": cell, "id": number} for number, cell in enumerate(cells)])
    rows = dovetail_ray.map(dataset, linear, "NUMPY", batch_size=8, keep=["id"]).take_all()
    found = {row["id"]: row for row in rows}
    assert {*found} == {*range(20)}
    good = [number for number in found if number != 10]
    np.testing.assert_allclose([found[number]["y"] for number in good], expected(x)[good], rtol=1e-5, atol=1e-6)
    assert np.isnan(found[10]["y"]).all()
    assert found[10]["error_code"] == "DT401"
    assert {found[number]["error_code"] for number in good} == {None}


def test_a_node_without_the_files_gets_them_once_and_the_threads_of_its_cpus(linear: Path, tmp_path: Path) -> None:
    import ray

    from dovetail_ray.shipping import Parcel, compiled_for, recipe_of

    def elsewhere(parcel: Any) -> tuple[str, dict[str, Any], Any]:
        recipe = parcel.unpacked()
        compiled = compiled_for(recipe, cpus=2)
        return recipe.folder, dict(compiled.recipe.properties), compiled({"x": [[1, 2, 3]]})[0]

    recipe = recipe_of(linear, "NUMPY")
    parcel = Parcel.of(recipe)
    away = replace(parcel, recipe=replace(recipe, folder="/nowhere/at/all"))
    changed = replace(parcel, recipe=replace(recipe, folder=str(tmp_path / "changed")))
    (tmp_path / "changed").mkdir()
    (tmp_path / "changed" / linear.name).write_bytes(b"another model")
    in_memory = Parcel.of(recipe_of(dovetail.Core().read_model(linear).reshape({"x": [1, 3]}), "CPU"))
    assert in_memory.recipe.content == b""
    (folder, properties, y), second, third, fourth = ray.get(
        [ray.remote(elsewhere).remote(each) for each in (away, changed, parcel, in_memory)]
    )
    assert folder == second[0]
    assert Path(folder).name == recipe.digest
    assert Path(folder, linear.name).read_bytes() == linear.read_bytes()
    assert third[0] == str(linear.parent)
    for result in (y, second[2], third[2], fourth[2]):
        np.testing.assert_array_equal(result, [[5.5, 4]])
    assert properties == {}  # NUMPY has no such property
    best = dovetail.Core().compile_model(linear, "CPU").device
    assert fourth[1] == ({} if best == "NUMPY.0" else {"INFERENCE_NUM_THREADS": 2})


@pytest.fixture
def python_without(tmp_path: Path) -> Callable[[str], Path]:
    """`python_without("package")`: an interpreter with everything that this one has, but for one package."""

    def make(package: str) -> Path:
        links = tmp_path / "links"
        links.mkdir()
        for folder in (*site.getsitepackages(),):
            for path in Path(folder).iterdir():
                if package not in path.name:
                    (links / path.name).symlink_to(path)
        venv.create(tmp_path / "env", symlinks=True)
        (packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
        (packages / "links.pth").write_text(f"import site; site.addsitedir({str(links)!r})\n")
        return tmp_path / "env" / "bin" / "python"

    return make


def test_a_node_without_the_op_pack_is_refused_before_the_first_row(
    tmp_path: Path, python_without: Callable[[str], Path]
) -> None:
    from onnx import TensorProto, helper, save

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("HSwish", ["x"], ["y"], domain="tim.vx")], "swish", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("tim.vx", 1)]
    model = tmp_path / "swish.onnx"
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), model)
    lines(tmp_path / "in.jsonl", 4)
    without = {"py_executable": str(python_without("dovetail_ops_tim_vx"))}
    with pytest.raises(PluginIncompatible) as caught:
        dovetail_ray.map_files(tmp_path / "in.jsonl", tmp_path / "out", model, "NUMPY", env=without)
    assert "on the node " in caught.value.message
    assert f"dovetail-ops-tim-vx {dovetail.__version__} (here missing)" in caught.value.message
    assert caught.value.hint == f"pip install dovetail-ops-tim-vx=={dovetail.__version__}"
    assert [*(tmp_path / "out").glob("part-*")] == []


@contextmanager
def killer(state: Path, every: int, times: int) -> Iterator[list[int]]:
    """Kill (SIGKILL) the worker that finished a block last, whenever so many more are done; yields those killed."""
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        seen = {*state.glob("[0-9]*.json")}
        while not over.is_set() and len(killed) < times:
            done = {*state.glob("[0-9]*.json")}
            fresh = sorted(done - seen, key=lambda path: path.stat().st_mtime_ns)
            if len(fresh) >= every:
                worker = json.loads(fresh[-1].read_text())["worker"]
                if worker not in killed:
                    with suppress(ProcessLookupError):
                        os.kill(worker, signal.SIGKILL)
                        killed.append(worker)
                seen = done
            time.sleep(0.005)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


@LONG
def test_workers_and_a_driver_that_are_killed_lose_nothing(linear: Path, tmp_path: Path, cluster: str) -> None:
    blocks = 150
    x = lines(tmp_path / "in.jsonl", 2 * blocks, {5: "{"})
    out, state = tmp_path / "out", tmp_path / "out" / "_dovetail"
    arguments = ["map", linear, tmp_path / "in.jsonl", "-o", out, "-d", "NUMPY", "--to", "parquet", "--block", 2, "--batch", 2]
    command = [sys.executable, "-m", "dovetail", *map(str, arguments), "--address", cluster]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as driver:
        deadline = time.monotonic() + 400
        while len([*state.glob("[0-9]*.json")]) < 10 and driver.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        driver.kill()
        printed = driver.communicate()[0].decode(errors="replace")
    assert driver.returncode == -signal.SIGKILL, printed
    with killer(state, every=20, times=2) as killed:
        summary = dovetail_ray.map_files(
            tmp_path / "in.jsonl", out, linear, "NUMPY", to="parquet", block_rows=2, batch_size=2, workers=2
        )
    assert killed  # two, unless the thread that kills got no CPU meanwhile
    assert summary.resumed >= 10
    assert (summary.rows, summary.errors, summary.blocks) == (2 * blocks, 1, blocks)
    rows = rows_of(out)
    assert {*rows} == {*range(2 * blocks)}
    good = [number for number in rows if number != 5]
    np.testing.assert_allclose([rows[number]["y"] for number in good], expected(x)[good], rtol=1e-5, atol=1e-6)
    assert rows[5]["error_code"] == "DT401"
    assert [path.name for path in out.glob(".part-*")] == []
