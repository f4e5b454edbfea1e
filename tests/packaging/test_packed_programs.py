"""Programs that bring dovetail in an archive, or packed by PyInstaller."""

import os
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from onnx import TensorProto, helper, save

ROOT = Path(__file__).resolve().parents[2]
WITH_HOOKS = {"core": "dovetail", "plugins/cpu_onednn": "dovetail_cpu_onednn", "plugins/gpu_opencl": "dovetail_gpu_opencl"}
PLUGINS = "dovetail-ops-onnx,dovetail-cpu-numpy,dovetail-frontend-onnx"

PROGRAM = """
import logging, sys
import numpy as np
import dovetail
assert ".whl" in dovetail.__file__, dovetail.__file__
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
compiled = dovetail.Core().compile_model("model.onnx", "NUMPY", {"CACHE_DIR": "plans"})
print(compiled(np.float32([[-1, 2]]))[0], "stored" if "nodes" not in vars(compiled.model.graph) else "planned")
"""


def test_packages_in_archives_run_and_store_plans(built: Callable[[str], tuple[Path, Path]], tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "test", [x], [y])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "model.onnx")
    wheels = [built(folder)[0] for folder in ("core", "plugins/ops_onnx", "plugins/cpu_numpy", "plugins/frontend_onnx")]
    archives = [Path(shutil.copy2(wheel, tmp_path)) for wheel in wheels]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, archives)),
        "DOVETAIL_PLUGINS": PLUGINS,
        "DOVETAIL_CACHE_LIMIT": "1000000000",
    }

    def run() -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run().endswith("[[0. 2.]] planned\n")
    assert run().endswith("[[0. 2.]] stored\n")
    os.utime(archives[2], (0, 0))
    assert "is not the one that made it" in run()


@pytest.mark.parametrize(("folder", "package"), WITH_HOOKS.items())
def test_pyinstaller_finds_the_hooks(folder: str, package: str) -> None:
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, function = project["entry-points"]["pyinstaller40"]["hook-dirs"].partition(":")
    (found,) = getattr(import_module(module), function)()
    assert Path(found, f"hook-{package}.py").is_file()


def test_the_hook_packs_every_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks: Any = ModuleType("PyInstaller.utils.hooks")
    hooks.copy_metadata = lambda name: [("metadata", name)]
    hooks.collect_all = lambda name, include_py_files: ([("data", name)], [("library", name)], [name])
    for name in ("PyInstaller", "PyInstaller.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, hooks.__name__, hooks)
    packed = runpy.run_path(str(ROOT / "core/src/dovetail/_pyinstaller/hook-dovetail.py"))
    for folder in ROOT.glob("plugins/*"):
        name = folder.name
        assert {("metadata", f"dovetail-{name.replace('_', '-')}"), ("data", f"dovetail_{name}")} <= set(packed["datas"])
        assert f"dovetail_{name}" in packed["hiddenimports"]
        assert ("library", f"dovetail_{name}") in packed["binaries"]
