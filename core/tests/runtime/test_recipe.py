"""Recipes: what travels of a compiled model, what is checked where it arrives, and when it is read and compiled."""

import dataclasses
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import FormatError, PluginIncompatible
from dovetail_ops_onnx.relu import Relu

X = np.array([[1, 2, 3]], np.float32)
Y = [[5.5, 4]]


@pytest.fixture
def compiled(linear: Path) -> dovetail.CompiledModel:
    return dovetail.Core(config=False).compile_model(linear, "NUMPY")


def in_memory() -> dovetail.Model:
    g = dovetail.GraphBuilder()
    return g.model([g.node(Relu(), g.input("x", "float32", ("N", 2)), outputs=["y"])])


def with_external_weights(folder: Path) -> Path:
    """y = x + w, with w in a file below the model's folder."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def tensor(name: str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])

    weights = numpy_helper.from_array(np.array([10, 20], np.float32), "w")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "test", [tensor("x")], [tensor("y")], [weights])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "data").mkdir(parents=True)
    path = folder / "model.onnx"
    onnx.save(made, path, save_as_external_data=True, location="data/weights.bin", size_threshold=0)
    return path


def test_a_file_travels_by_name_and_digest(compiled: dovetail.CompiledModel, linear: Path) -> None:
    recipe = compiled.recipe
    assert (recipe.source, recipe.format, recipe.folder) == (str(linear), "onnx", str(linear.parent))
    assert [*recipe.files] == ["linear.onnx"]
    assert recipe.content == b""
    assert (recipe.device, recipe.properties) == ("NUMPY", {})
    assert recipe.inputs == compiled.inputs
    assert recipe.outputs == {"y": dovetail.TensorType(dovetail.DType.FLOAT32, ("N", 2))}
    assert len(pickle.dumps(compiled)) < 2000


def test_the_report_and_the_model_say_what_is_required(compiled: dovetail.CompiledModel) -> None:
    expected = {"dovetail", "dovetail-cpu-numpy", "dovetail-frontend-onnx", "dovetail-ops-onnx"}
    assert {*compiled.recipe.requires} == expected  # open dimensions: without a plan yet
    compiled(X)
    assert compiled.recipe.requires == dict.fromkeys(sorted(expected), dovetail.__version__)


def test_properties_that_were_set_before_travel(linear: Path) -> None:
    core = dovetail.Core(config={"devices": {"NUMPY": {"PLAN_CACHE": 3, "TIME_LIMIT": 50.0}}})
    core.set_property("NUMPY", {"TIME_LIMIT": 60.0})
    compiled = core.compile_model(linear, "CPU", {"FALLBACK": True})
    of_numpy = core.compile_model(linear, "NUMPY", {"FALLBACK": False})
    assert compiled.recipe.properties == {"FALLBACK": True}
    assert of_numpy.recipe.properties == {"PLAN_CACHE": 3, "TIME_LIMIT": 60.0, "FALLBACK": False}
    assert dovetail.CompiledModel.of(of_numpy.recipe).time_limit == 60.0


def test_nothing_is_read_or_compiled_before_the_first_use(compiled: dovetail.CompiledModel, linear: Path) -> None:
    sent, recipe = pickle.dumps(compiled), compiled.recipe
    content = linear.read_bytes()
    linear.unlink()
    again = pickle.loads(sent)
    assert "not compiled yet" in repr(again)
    assert (again.inputs, again.outputs, again.recipe) == (compiled.inputs, compiled.outputs, recipe)
    linear.write_bytes(content)
    np.testing.assert_array_equal(again(X)[0], Y)
    assert repr(again) == f"<CompiledModel {linear} on NUMPY>"
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(again))(X)[0], Y)


def test_a_file_that_is_missing_or_another_is_refused(compiled: dovetail.CompiledModel, linear: Path, tmp_path: Path) -> None:
    recipe = compiled.recipe
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    linear.rename(moved / linear.name)
    with pytest.raises(FormatError, match=r"linear\.onnx of .* is missing\n.*folder=") as caught:
        dovetail.CompiledModel.of(recipe)(X)
    assert str(linear) in caught.value.message
    there = dataclasses.replace(recipe, folder=str(moved))
    np.testing.assert_array_equal(dovetail.CompiledModel.of(there)(X)[0], Y)
    assert there.digest == recipe.digest
    (moved / linear.name).write_bytes(b"another")
    with pytest.raises(FormatError, match="has changed since the model was compiled"):
        dovetail.CompiledModel.of(there)(X)


def test_a_file_that_has_changed_since_it_was_read_does_not_travel(compiled: dovetail.CompiledModel, linear: Path) -> None:
    status = linear.stat()
    os.utime(linear, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert compiled.recipe.files == {}
    linear.unlink()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(compiled))(X)[0], Y)


def test_files_beside_the_model_belong_to_it(tmp_path: Path) -> None:
    path = with_external_weights(tmp_path / "one")
    recipe = dovetail.Core(config=False).compile_model(path, "NUMPY").recipe
    assert [*recipe.files] == ["model.onnx", "data/weights.bin"]
    other = with_external_weights(tmp_path / "two")
    there = dataclasses.replace(recipe, folder=str(other.parent))
    np.testing.assert_array_equal(dovetail.CompiledModel.of(there)({"x": np.zeros(2, np.float32)})[0], [10, 20])
    (other.parent / "data/weights.bin").write_bytes(b"\0" * 8)
    with pytest.raises(FormatError, match=r"weights\.bin"):
        dovetail.CompiledModel.of(there)({"x": np.zeros(2, np.float32)})


def reshaped(core: dovetail.Core, file: Path) -> dovetail.Model:
    return core.read_model(file).reshape({"x": [1, 3]})


def from_bytes(core: dovetail.Core, file: Path) -> dovetail.Model:
    return core.read_model(file.read_bytes(), format="onnx")


@pytest.mark.parametrize("make", [reshaped, from_bytes])
def test_other_models_travel_by_value(make: Callable[[dovetail.Core, Path], dovetail.Model], linear: Path) -> None:
    core = dovetail.Core(config=False)
    recipe = core.compile_model(make(core, linear), "NUMPY").recipe
    assert recipe.files == {}
    assert recipe.folder == ""
    linear.unlink()
    copy = pickle.loads(pickle.dumps(recipe))
    assert copy == recipe
    np.testing.assert_array_equal(dovetail.CompiledModel.of(copy)(X)[0], Y)


def test_models_have_digests_of_their_own(linear: Path) -> None:
    core = dovetail.Core(config=False)
    models = [core.read_model(linear), reshaped(core, linear), in_memory()]
    digests = [core.compile_model(model, "NUMPY").recipe.digest for model in models]
    assert len({*digests}) == 3
    assert all(len(digest) == 64 for digest in digests)


def test_check_names_what_is_missing_or_of_another_version(compiled: dovetail.CompiledModel) -> None:
    recipe = compiled.recipe
    recipe.check()
    wrong = {**recipe.requires, "dovetail-ops-onnx": "0.0.9", "dovetail-ops-acme": "2.1"}
    elsewhere = dataclasses.replace(recipe, requires=wrong)
    with pytest.raises(PluginIncompatible) as caught:
        elsewhere.check()
    here = f"dovetail-ops-onnx 0.0.9 (here {dovetail.__version__}), dovetail-ops-acme 2.1 (here missing)"
    assert caught.value.message.endswith(here)
    assert caught.value.hint == "pip install dovetail-ops-onnx==0.0.9 dovetail-ops-acme==2.1"


def test_an_unpickled_model_checks_before_it_reads(compiled: dovetail.CompiledModel, linear: Path) -> None:
    elsewhere = dataclasses.replace(compiled.recipe, requires={"dovetail-ops-acme": "2.1"})
    linear.unlink()
    again = pickle.loads(pickle.dumps(dovetail.CompiledModel.of(elsewhere)))
    for _ in range(2):
        with pytest.raises(PluginIncompatible, match=r"dovetail-ops-acme 2\.1"):
            again(X)


def test_unpickling_imports_no_plugin(compiled: dovetail.CompiledModel, tmp_path: Path) -> None:
    """A process that cannot run the model can still unpickle it and say why."""
    elsewhere = dovetail.CompiledModel.of(dataclasses.replace(compiled.recipe, requires={"dovetail-ops-acme": "2.1"}))
    (tmp_path / "sent").write_bytes(pickle.dumps(elsewhere))
    code = """if True:
        import pickle, sys
        model = pickle.load(open("sent", "rb"))
        print([name for name in sys.modules if name.startswith("dovetail_")])
        try:
            model.recipe.check()
        except Exception as error:
            print(error.code, error.hint)
    """
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.splitlines() == ["[]", "DT603 pip install dovetail-ops-acme==2.1"]
