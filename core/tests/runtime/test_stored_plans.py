"""Plans in files: what is stored, when it holds, and files that are damaged or hostile."""

import json
import mmap
import os
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.errors import DovetailError, FormatError, UsageError
from dovetail.planning.plan_format import PLAN_MAGIC
from dovetail_ops_onnx.relu import Relu

X = np.array([[1, -2, 3]], np.float32)
HEAD = len(PLAN_MAGIC)


def write_model(path: Path, rows: object = 1, scale: float = 2.0, *, external: bool = False) -> Path:
    """y = relu(x w) + 1, with x [rows, 3]; w has two rows of zeros that make it large enough to be mapped."""
    w = np.random.default_rng(1).standard_normal((3, 9_000)).astype(np.float32) * np.float32(scale)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"]),
        helper.make_node("Relu", ["xw"], ["r"]),
        helper.make_node("Add", ["r", "one"], ["y"]),
    ]
    one = numpy_helper.from_array(np.ones(1, np.float32), "one")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, size]) for n, size in (("x", 3), ("y", 9_000)))
    graph = helper.make_graph(nodes, "test", [x], [y], [numpy_helper.from_array(w, "w"), one])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (path.parent / "weights.bin").unlink(missing_ok=True)  # onnx would append to it
    kept = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 1000} if external else {}
    onnx.save(made, path, **kept)
    return path


@pytest.fixture(autouse=True)
def _room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE_LIMIT", str(1 << 30))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.onnx")


@pytest.fixture
def stored(model: Path, tmp_path: Path) -> Path:
    path = tmp_path / "model.plans"
    dovetail.Core(config=False).compile_model(model, "NUMPY").export_model(path)
    return path


def is_unread(compiled: dovetail.CompiledModel) -> bool:
    """Whether nobody has looked at the nodes of the model."""
    return "nodes" not in vars(compiled.model.graph)


def test_an_exported_model_runs_without_its_file(model: Path, stored: Path) -> None:
    expected = dovetail.Core(config=False).compile_model(model, "NUMPY")
    y, report = expected(X)[0], str(expected.report())
    model.unlink()
    compiled = dovetail.Core(config=False).import_model(stored)
    np.testing.assert_array_equal(compiled(X)[0], y)
    assert (str(compiled.report()), compiled.device, compiled.inputs) == (report, "NUMPY", expected.inputs)
    assert [*compiled.outputs] == [*expected.outputs]
    with pytest.raises(FormatError, match="changed, or is gone"):
        _ = compiled.model.graph.nodes


def test_other_shapes_are_planned_from_the_model(tmp_path: Path) -> None:
    path, plans = write_model(tmp_path / "open.onnx", "N"), tmp_path / "open.plans"
    first = dovetail.Core(config=False).compile_model(path, "NUMPY")
    with pytest.raises(UsageError, match="no plan yet"):
        first.export_model(plans)
    first(X)
    first.export_model(plans)
    compiled = dovetail.Core(config=False).import_model(plans)
    np.testing.assert_array_equal(compiled(X)[0], first(X)[0])
    assert is_unread(compiled)
    two = np.concatenate([X, 2 * X])
    np.testing.assert_array_equal(compiled(two)[0], first(two)[0])
    assert not is_unread(compiled)
    path.unlink()
    other = dovetail.Core(config=False).import_model(plans)
    with pytest.raises(FormatError, match=r"open\.onnx.*is gone"):
        other(two)


def test_what_is_read_later_must_be_the_same_model(model: Path, stored: Path) -> None:
    compiled = dovetail.Core(config=False).import_model(stored)
    write_model(model, 2, 3.0)
    with pytest.raises(FormatError, match="changed, or is gone"):
        _ = compiled.model.graph.nodes


@pytest.mark.parametrize(
    ("device", "properties", "named"),
    [
        ("NUMPY", {"FUSION": False}, "property FUSION True, here is False"),
        ("ONEDNN", {}, "for device NUMPY"),
        ("CPU", {}, "it was made for "),
    ],
)
def test_another_device_or_property_is_named(stored: Path, device: str, properties: dict[str, Any], named: str) -> None:
    with pytest.raises(FormatError, match=named) as error:
        dovetail.Core(config=False).import_model(stored, device, properties)
    assert "export it again" in str(error.value)


NESTED = "deep"  # in a header that is written anew: lists in lists, more than any Python reads


def edited(path: Path, change: Callable[[Any], object]) -> None:
    """The file with another header, whose checksum is right."""
    content = path.read_bytes()
    size = int.from_bytes(content[HEAD + 4 : HEAD + 12], "little")
    header = json.loads(content[HEAD + 12 : HEAD + 12 + size])
    arrays = content[-(-(HEAD + 12 + size) // 64) * 64 :]
    change(header)
    text = json.dumps(header).replace(f'"{NESTED}"', "[" * 100_000 + "]" * 100_000).encode()
    whole = PLAN_MAGIC + zlib.crc32(text).to_bytes(4, "little") + len(text).to_bytes(8, "little") + text
    path.write_bytes(whole + bytes(-len(whole) % 64) + arrays)


@pytest.mark.parametrize("name", ["Python", "NumPy", "dovetail", "plugin dovetail-cpu-numpy/devices/numpy", "preferences"])
def test_other_versions_are_named(stored: Path, name: str) -> None:
    edited(stored, lambda header: header["made_for"]["needs"].update({name: "another"}))
    with pytest.raises(FormatError, match=f"for {name} another, here is "):
        dovetail.Core(config=False).import_model(stored)


def test_changed_code_is_named(stored: Path) -> None:
    def change(header: Any) -> None:
        files = header["made_for"]["modules"]["dovetail_cpu_numpy"]
        files[0][1] += 1

    edited(stored, change)
    with pytest.raises(FormatError, match=r"the module dovetail_cpu_numpy/.* is not the one"):
        dovetail.Core(config=False).import_model(stored)


def test_preferences_count(stored: Path) -> None:
    with pytest.raises(FormatError, match="preferences"):
        dovetail.Core(config=False, prefer=["dovetail-ops-onnx"]).import_model(stored)


def test_operators_of_the_session_are_refused(model: Path, stored: Path, tmp_path: Path) -> None:
    class Mine(dovetail.Operator):
        domain = "test"

        def infer(self, X: Any) -> Any:
            return X

    core = dovetail.Core(config=False)
    core.add_extension(Mine)
    for use in (lambda: core.import_model(stored), lambda: core.compile_model(model, "NUMPY").export_model(tmp_path / "p")):
        with pytest.raises(UsageError, match=r"plugins of this process: test::Mine"):
            use()
    assert not (tmp_path / "p").exists()


def test_models_of_no_file_are_refused(model: Path, tmp_path: Path) -> None:
    g = dovetail.GraphBuilder()
    made = g.model([g.node(Relu(), g.input("x", "float32", (1, 3)), outputs=["y"])])
    core = dovetail.Core(config=False)
    for one in (made, core.read_model(model).reshape({"x": [2, 3]})):
        with pytest.raises(UsageError, match="made or changed in memory"):
            core.compile_model(one, "NUMPY").export_model(tmp_path / "p")


def test_several_devices_are_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="several devices"):
        dovetail.Core(config=False).compile_model(model, "MULTI:NUMPY,ONEDNN").export_model(tmp_path / "p")


# --- damaged and hostile files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"dovetail-plans-2\n", b"\x80\x04pickle", bytes(1000)])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.plans"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="not a file of plans"):
        dovetail.Core(config=False).import_model(path)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(FormatError, match=str(path)):
            dovetail.Core(config=False).import_model(path)


def test_truncated_files_are_refused(stored: Path) -> None:
    content = stored.read_bytes()
    for size in sorted({*range(0, 200, 7), *range(200, len(content), 1013), len(content) - 1}):
        stored.write_bytes(content[:size])
        with pytest.raises(FormatError, match="not a file of plans"):
            dovetail.Core(config=False).import_model(stored)


def test_damaged_headers_and_weights_are_refused(stored: Path) -> None:
    content, rng = stored.read_bytes(), np.random.default_rng(7)
    size = HEAD + 12 + int.from_bytes(content[HEAD + 4 : HEAD + 12], "little")
    for place in (*rng.integers(0, size, 50), *rng.integers(size + 64, len(content), 5), len(content) - 1):
        stored.write_bytes(content[:place] + bytes([content[place] ^ 1 << int(place) % 8]) + content[place + 1 :])
        with pytest.raises(FormatError, match="not a file of plans"):
            dovetail.Core(config=False).import_model(stored)


HOSTILE: dict[str, Callable[[Any], object]] = {
    "a class of the library": lambda h: h["classes"].append(["subprocess", "Popen"]),
    "a function": lambda h: h["classes"].append(["dovetail.cli", "main"]),
    "a program": lambda h: h["classes"].append(["dovetail.__main__", "x"]),
    "a class that is imported": lambda h: h["classes"].append(["dovetail.cache", "Path"]),
    "a missing module": lambda h: h["classes"].append(["dovetail.nowhere", "X"]),
    "a path": lambda h: h["classes"].append(["dovetail/../os", "X"]),
    "an array behind the end": lambda h: h["arrays"][0].__setitem__(3, 1 << 40),
    "an array in another file": lambda h: h["arrays"][0].__setitem__(2, 1),
    "an array in the model": lambda h: (
        h["arrays"][0].__setitem__(2, 1),
        h["made_for"].update(files=[["/etc/passwd", 1, 1, 1, 1]]),
    ),
    "an array before the beginning": lambda h: h["arrays"][0].__setitem__(3, -64),
    "a huge array": lambda h: h["arrays"][0].__setitem__(1, [1 << 40, 1 << 40]),
    "a negative size": lambda h: h["arrays"][0].__setitem__(1, [-1, -9_000]),
    "a data type that does not exist": lambda h: h["arrays"][0].__setitem__(0, "float9"),
    "an object that follows": lambda h: h["objects"].insert(0, ["list", {"": 5}]),
    "a kind that does not exist": lambda h: h["objects"].append(["pickle", "x"]),
    "deep nesting": lambda h: h["objects"].append(["list", NESTED]),
    "another root": lambda h: h.update(root={"": 0}),
    "no root": lambda h: h.pop("root"),
    "no objects": lambda h: h.update(objects=7),
    "needs that are none": lambda h: h["made_for"].update(needs=[1]),
    "modules that are none": lambda h: h["made_for"].update(modules=3),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers_are_refused(stored: Path, name: str) -> None:
    edited(stored, HOSTILE[name])
    with pytest.raises(FormatError):
        dovetail.Core(config=False).import_model(stored)


def test_a_constant_smaller_than_its_type_is_refused(stored: Path) -> None:
    """A kernel would read behind it."""

    def shrink(header: Any) -> None:
        header["arrays"] = [[dtype, [1, 1] if len(shape) == 2 else shape, *at] for dtype, shape, *at in header["arrays"]]

    edited(stored, shrink)
    with pytest.raises(FormatError, match="the type of value"):
        dovetail.Core(config=False).import_model(stored)


def test_random_changes_raise_only_errors_of_dovetail(stored: Path) -> None:
    whole, rng = stored.read_bytes(), np.random.default_rng(3)

    def change(header: Any) -> None:
        entry = header["objects"][rng.integers(len(header["objects"]))]
        entry[rng.integers(len(entry))] = [None, -1, 0, 5, "x", [], {"": 0}, {"": 3}, 1e300, True][rng.integers(10)]

    refused = 0
    for _ in range(60):
        stored.write_bytes(whole)
        edited(stored, change)
        try:
            dovetail.Core(config=False).import_model(stored)
        except DovetailError:
            refused += 1
    assert refused > 30


# --- CACHE_DIR --------------------------------------------------------------------------------------------------------


def compiled_with(folder: Path, model: Path, **properties: Any) -> dovetail.CompiledModel:
    return dovetail.Core(config=False).compile_model(model, "NUMPY", {"CACHE_DIR": str(folder), **properties})


@pytest.mark.parametrize("rows", [1, "N"])
def test_a_second_session_reads_no_model(tmp_path: Path, rows: object) -> None:
    model, folder = write_model(tmp_path / "m.onnx", rows), tmp_path / "cache"
    first = compiled_with(folder, model)
    y = first(X)[0]
    second = compiled_with(folder, model)
    np.testing.assert_array_equal(second(X)[0], y)
    assert is_unread(second)
    assert not is_unread(first)
    assert str(second.report()) == str(first.report())
    two = np.concatenate([X, X])
    if rows == "N":  # each shape has an entry
        compiled_with(folder, model)(two)
        third = compiled_with(folder, model)
        np.testing.assert_array_equal(third(two)[0], first(two)[0])
        assert is_unread(third)
    assert len(second.model.graph.nodes) == 3


def test_a_model_that_was_read_skips_the_passes(tmp_path: Path, model: Path) -> None:
    compiled_with(tmp_path / "cache", model)
    core = dovetail.Core(config=False)
    found = core.compile_model(core.read_model(model), "NUMPY", {"CACHE_DIR": str(tmp_path / "cache")})
    assert found.report().passes == ()
    found(X)


@pytest.mark.parametrize("external", [False, True])
def test_a_changed_model_is_compiled_anew(tmp_path: Path, external: bool) -> None:
    model, folder = write_model(tmp_path / "m.onnx", external=external), tmp_path / "cache"
    compiled_with(folder, model)
    changed = tmp_path / "weights.bin" if external else model
    before = changed.stat()
    write_model(model, scale=5.0, external=external)
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    if external:  # the model itself is as it was
        assert changed.stat().st_size == before.st_size
    second = compiled_with(folder, model)
    assert not is_unread(second)
    np.testing.assert_array_equal(second(X)[0], dovetail.Core(config=False).compile_model(model, "NUMPY")(X)[0])


def test_a_model_replaced_by_one_with_the_same_size_and_time_is_compiled_anew(tmp_path: Path) -> None:
    """As archives and images give all files the same time."""
    model, folder = write_model(tmp_path / "m.onnx"), tmp_path / "cache"
    compiled_with(folder, model)
    before = model.stat()
    write_model(tmp_path / "new.onnx", scale=5.0)
    os.utime(tmp_path / "new.onnx", ns=(before.st_atime_ns, before.st_mtime_ns))
    (tmp_path / "new.onnx").replace(model)
    assert (model.stat().st_size, model.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    expected = dovetail.Core(config=False).compile_model(model, "NUMPY")(X)[0]
    core = dovetail.Core(config=False)
    for given in (model, core.read_model(model)):
        found = core.compile_model(given, "NUMPY", {"CACHE_DIR": str(folder)})
        np.testing.assert_array_equal(found(X)[0], expected)


def test_the_same_content_with_other_times_is_a_hit(tmp_path: Path, model: Path) -> None:
    compiled_with(tmp_path / "cache", model)
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(model.read_bytes())
    copy.replace(model)
    os.utime(model, (1, 1))
    assert is_unread(compiled_with(tmp_path / "cache", model))


def test_a_model_replaced_after_it_was_read_is_not_given_plans_of_its_successor(tmp_path: Path) -> None:
    model, folder = write_model(tmp_path / "m.onnx"), tmp_path / "cache"
    core = dovetail.Core(config=False)
    read = core.read_model(model)
    expected = core.compile_model(read, "NUMPY")(X)[0]
    write_model(tmp_path / "new.onnx", scale=5.0).replace(model)
    compiled_with(folder, model)
    entries = sorted((folder / "plans").iterdir())
    found = core.compile_model(read, "NUMPY", {"CACHE_DIR": str(folder)})
    np.testing.assert_array_equal(found(X)[0], expected)
    assert sorted((folder / "plans").iterdir()) == entries  # and keeps none of its own
    np.testing.assert_array_equal(
        compiled_with(folder, model)(X)[0], dovetail.Core(config=False).compile_model(model, "NUMPY")(X)[0]
    )


@pytest.mark.skipif(not hasattr(mmap.mmap, "madvise"), reason="files are not mapped on Windows")
@pytest.mark.parametrize("external", [False, True])
def test_entries_refer_to_the_weights_of_the_model(tmp_path: Path, external: bool) -> None:
    model, folder = write_model(tmp_path / "m.onnx", external=external), tmp_path / "cache"
    expected = compiled_with(folder, model)(X)[0]
    (entry,) = (folder / "plans").iterdir()
    assert entry.stat().st_size < 100_000 < 4 * 3 * 9_000  # most of it are the names of modules
    np.testing.assert_array_equal(compiled_with(folder, model)(X)[0], expected)
    dovetail.Core(config=False).compile_model(model, "NUMPY").export_model(tmp_path / "m.plans")
    assert (tmp_path / "m.plans").stat().st_size > 4 * 3 * 9_000


@pytest.mark.parametrize("properties", [{"FUSION": False}, {"PASSES": "-drop_identities"}])
def test_other_properties_are_other_plans(tmp_path: Path, model: Path, properties: dict[str, Any]) -> None:
    compiled_with(tmp_path / "cache", model)
    assert not is_unread(compiled_with(tmp_path / "cache", model, **properties))
    assert is_unread(compiled_with(tmp_path / "cache", model, **properties))


def test_properties_without_effect_on_plans_do_not_count(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_with(tmp_path / "cache", model)
    assert is_unread(compiled_with(tmp_path / "cache", model, TIME_LIMIT=100.0, PLAN_CACHE=3))
    core = dovetail.Core(config=False)  # PoCL reports what memory is free
    monkeypatch.setitem(core.plugins.device_info("NUMPY").details, "memory_bytes", 1 << 30)
    assert is_unread(core.compile_model(model, "NUMPY", {"CACHE_DIR": str(tmp_path / "cache")}))


def _flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize(
    "damage", [lambda c: b"", lambda c: c[:-1], lambda c: c[:100] + b"x" + c[101:], lambda c: bytes(len(c)), _flipped]
)
def test_damaged_entries_are_misses(tmp_path: Path, model: Path, damage: Callable[[bytes], bytes]) -> None:
    y = compiled_with(tmp_path / "cache", model)(X)[0]
    entries = [path for path in (tmp_path / "cache" / "plans").iterdir() if path.is_file()]
    assert len(entries) == 1
    entries[0].write_bytes(damage(entries[0].read_bytes()))
    again = compiled_with(tmp_path / "cache", model)
    assert not is_unread(again)
    np.testing.assert_array_equal(again(X)[0], y)
    assert is_unread(compiled_with(tmp_path / "cache", model))  # it was written again


def test_what_cannot_be_kept_runs_all_the_same(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (not_a_folder := tmp_path / "file").write_text("x")
    for folder in (not_a_folder, tmp_path / ("x" * 300)):  # a name that is too long is an OSError like a folder of another user
        compiled_with(folder, model)(X)
    monkeypatch.setenv("DOVETAIL_CACHE_LIMIT", "0")
    compiled_with(tmp_path / "cache", model)(X)
    assert not (tmp_path / "cache").exists()


def test_other_entries_are_found_by_the_cache_command(tmp_path: Path, model: Path) -> None:
    from dovetail.cache import clear_cache, list_cache

    compiled_with(tmp_path / "cache", model)
    assert [entry.section for entry in list_cache(tmp_path / "cache")] == ["plans"]
    assert len(clear_cache(tmp_path / "cache")) == 1


def test_control_flow_is_stored(tmp_path: Path) -> None:
    """y = x + 1 if the sum of x is positive, else x - 1: planned when the sum is there."""
    branches = {}
    for name, op in (("then_branch", "Add"), ("else_branch", "Sub")):
        y = helper.make_tensor_value_info("b", TensorProto.FLOAT, [1, 3])
        branches[name] = helper.make_graph([helper.make_node(op, ["x", "one"], ["b"])], name, [], [y])
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["i"], **branches),
        helper.make_node("Relu", ["i"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3]) for n in "xy")
    constants = [numpy_helper.from_array(np.array(value, np.float32), n) for n, value in (("one", 1), ("zero", 0))]
    graph = helper.make_graph(nodes, "test", [x], [y], constants)
    path = tmp_path / "if.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    first = compiled_with(tmp_path / "cache", path)
    second = compiled_with(tmp_path / "cache", path)
    for given in (X, -X):
        np.testing.assert_array_equal(second(given)[0], first(given)[0])
    assert is_unread(second)


def test_states_that_a_property_declares_are_not_stored(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.onnx")
    core = dovetail.Core(config=False)
    with pytest.raises(UsageError):
        core.compile_model(path, "NUMPY", {"STATE": "x:nothing", "CACHE_DIR": str(tmp_path / "cache")})
    assert not (tmp_path / "cache").exists()


def test_two_processes_at_once(tmp_path: Path, model: Path) -> None:
    code = (
        "import sys, numpy as np, dovetail\n"
        "core = dovetail.Core(config=False)\n"
        "compiled = core.compile_model(sys.argv[1], 'NUMPY', {'CACHE_DIR': sys.argv[2]})\n"
        "print(float(compiled(np.array([[1, -2, 3]], np.float32))[0].sum()))\n"
    )
    command = [sys.executable, "-c", code, str(model), str(tmp_path / "cache")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    printed = {one.communicate(timeout=120)[0] for one in running}
    assert len(printed) == 1
    assert [one.returncode for one in running] == [0, 0, 0]
    assert [path.name[0] for path in (tmp_path / "cache" / "plans").iterdir()] == ["0"]


def test_threads_share_what_was_imported(stored: Path) -> None:
    compiled = dovetail.Core(config=False).import_model(stored)
    expected, found = compiled(X)[0], []
    threads = [threading.Thread(target=lambda: found.append(compiled(X)[0])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(one, expected) for one in found)
    assert len(found) == 4


def test_an_imported_model_travels_as_its_recipe(stored: Path) -> None:
    import pickle

    compiled = dovetail.Core(config=False).import_model(stored)
    again = pickle.loads(pickle.dumps(compiled))
    np.testing.assert_array_equal(again(X)[0], compiled(X)[0])
