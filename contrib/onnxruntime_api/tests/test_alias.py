"""Three ways to `import onnxruntime` and get dovetail; never by installation alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import onnxruntime as ort
from onnxruntime import InferenceSession
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, NoSuchFile
from onnxruntime.capi import _pybind_state as C
import onnxruntime.capi.onnxruntime_inference_collection
assert C.InferenceSession is InferenceSession is ort.InferenceSession
assert onnxruntime.capi.onnxruntime_inference_collection.InferenceSession is InferenceSession
try:
    InferenceSession("nothing.onnx")
except NoSuchFile:
    print("no such file")
print(__name__, sys.argv[1:], ort.InferenceSession.__module__)
"""
CHILD = """
import multiprocessing

def work():
    import onnxruntime
    return onnxruntime.InferenceSession.__module__

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(work))
"""
QUANTIZE = """
import sys
import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, quantize_static

rng = np.random.default_rng(0)
x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", size]) for name, size in (("x", 16), ("y", 8)))
weights = numpy_helper.from_array(rng.normal(size=(16, 8)).astype(np.float32), "w")
graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product", [x], [y], [weights])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "model.onnx")
rows = rng.normal(size=(64, 16)).astype(np.float32)

class Reader(CalibrationDataReader):
    left = [{"x": rows}]

    def get_next(self):
        return self.left.pop() if self.left else None

quantize_static("model.onnx", "int8.onnx", Reader())
print(sys.modules["onnxruntime.quantization.calibrate"].onnxruntime.InferenceSession.__module__)
(found,), (want,) = (ort.InferenceSession(path).run(None, {"x": rows}) for path in ("int8.onnx", "model.onnx"))
print(0 < np.abs(found - want).max() < 0.05 * np.abs(want).max())
"""
OWN = "dovetail_onnxruntime.session"


def run(*arguments: object, cwd: Path, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DOVETAIL_ONNXRUNTIME")}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=cwd, env={**clean, **environment}, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_runner_with_a_file(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    assert run("-m", "dovetail_onnxruntime", "app.py", "a", "-d", cwd=tmp_path) == f"no such file\n__main__ ['a', '-d'] {OWN}\n"


def test_the_runner_with_a_module_and_a_device(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PROGRAM + "import os; print(os.environ['DOVETAIL_ONNXRUNTIME_DEVICE'])")
    said = run("-m", "dovetail_onnxruntime", "-d", "NUMPY", "-m", "mine", "x", cwd=tmp_path)
    assert said == f"no such file\n__main__ ['x'] {OWN}\nNUMPY\n"


def test_spawned_children(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(CHILD)
    assert run("-m", "dovetail_onnxruntime", "app.py", cwd=tmp_path) == f"{OWN}\n"


def test_the_environment_variable(tmp_path: Path) -> None:
    code = "import onnxruntime; print(onnxruntime.InferenceSession.__module__)"
    assert run("-c", code, cwd=tmp_path, DOVETAIL_ONNXRUNTIME="1") == f"{OWN}\n"


@pytest.mark.parametrize("variable", [{}, {"DOVETAIL_ONNXRUNTIME": "0"}, {"DOVETAIL_ONNXRUNTIME": ""}])
def test_installation_alone_does_nothing(tmp_path: Path, variable: dict[str, str]) -> None:
    code = "import sys; print([m for m in sys.modules if m.startswith('dovetail_onnxruntime')])"
    assert run("-c", code, cwd=tmp_path, **variable) == "[]\n"


def test_distributions_keep_their_truth(tmp_path: Path) -> None:
    code = "import importlib.metadata as m; print([n for n in m.packages_distributions().get('onnxruntime', [])])"
    assert run("-c", code, cwd=tmp_path, DOVETAIL_ONNXRUNTIME="1") == run("-c", code, cwd=tmp_path)


def test_modules_and_symbols_that_are_not_there(tmp_path: Path) -> None:
    code = """
import importlib.util
assert importlib.util.find_spec("onnxruntime") is not None
assert importlib.util.find_spec("onnxruntime.training") is None
try:
    import onnxruntime.training
except ModuleNotFoundError as error:
    print(error.name)
import onnxruntime
try:
    onnxruntime.SparseTensor
except AttributeError as error:
    print(error)
"""
    first, second = run("-c", code, cwd=tmp_path, DOVETAIL_ONNXRUNTIME="1").splitlines()
    assert first == "onnxruntime.training"
    assert "no attribute 'SparseTensor': dovetail has no sparse tensors" in second


def test_tools_of_an_installed_onnxruntime_use_sessions_of_dovetail(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(QUANTIZE)
    assert run("-m", "dovetail_onnxruntime", "app.py", cwd=tmp_path) == f"{OWN}\nTrue\n"


def test_tools_without_onnxruntime(tmp_path: Path) -> None:
    code = """
import importlib.util, os, sys
import dovetail_onnxruntime
sys.path = [folder for folder in sys.path if not os.path.isdir(os.path.join(folder, "onnxruntime"))]
assert importlib.util.find_spec("onnxruntime.quantization") is None
try:
    from onnxruntime.quantization import quantize_dynamic
except ModuleNotFoundError as error:
    print(error.name)
"""
    assert run("-c", code, cwd=tmp_path, DOVETAIL_ONNXRUNTIME="1") == "onnxruntime.quantization\n"


TOOLS = """
import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper
from onnxruntime import backend
from onnxruntime.quantization import quant_pre_process
from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer

rng = np.random.default_rng(0)
x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", size]) for name, size in (("x", 64), ("y", 32)))
weights = numpy_helper.from_array(rng.normal(size=(64, 32)).astype(np.float32), "w")
graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product", [x], [y], [weights])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
rows = rng.normal(size=(5, 64)).astype(np.float32)
want = rows @ numpy_helper.to_array(weights)
print(type(backend.prepare(model)._session).__module__)
print(np.abs(backend.run(model, rows)[0] - want).max() < 1e-4)
quant_pre_process(model, "ready.onnx", skip_symbolic_shape=True)
print(np.abs(ort.InferenceSession("ready.onnx").run(None, {"x": rows})[0] - want).max() < 1e-4)
quantizer = MatMulBnb4Quantizer(onnx.load("ready.onnx"), MatMulBnb4Quantizer.NF4, 32)
quantizer.process()
found = ort.InferenceSession(quantizer.model.model.SerializeToString()).run(None, {"x": rows})[0]
print(0 < np.abs(found - want).max() < 0.15 * np.abs(want).max())
"""


def test_tools_that_call_the_native_module_or_write_models(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    assert run("tools.py", cwd=tmp_path, DOVETAIL_ONNXRUNTIME="1").split() == ["dovetail_onnxruntime.session", *["True"] * 3]


def test_onnxruntime_that_was_imported_before(tmp_path: Path) -> None:
    code = """
import onnxruntime
from dovetail_onnxruntime.alias import activate
try:
    activate()
except RuntimeError as error:
    print(error)
"""
    assert "imported already" in run("-c", code, cwd=tmp_path)
