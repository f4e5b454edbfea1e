"""Every package builds a wheel and an sdist that work when they are installed alone beside the core, in a clean environment."""

import json
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (p.parent for d in ("plugins", "contrib") for p in ROOT.glob(f"{d}/*/pyproject.toml"))
PACKAGES = ["core", *sorted(str(folder.relative_to(ROOT)) for folder in FOLDERS)]

Build = Callable[[str], tuple[Path, Path]]


@pytest.mark.parametrize("package", PACKAGES)
def test_wheel_and_sdist_hold_what_they_need(built: Build, package: str) -> None:
    wheel, sdist = built(package)
    inside = set(zipfile.ZipFile(wheel).namelist())
    (source,) = (ROOT / package / "src").iterdir()
    wanted = {str(p.relative_to(source.parent)) for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    project = tomllib.loads((ROOT / package / "pyproject.toml").read_text(encoding="utf-8"))
    moved = project["tool"]["hatch"]["build"]["targets"]["wheel"].get("force-include", {})
    assert {moved.get(f"src/{name}", name) for name in wanted} <= inside
    assert any(name.endswith("/py.typed") for name in inside)
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    with tarfile.open(sdist) as archive:
        names = {n.partition("/")[2] for n in archive.getnames()}
    assert {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"} <= names


def test_each_wheel_works_in_a_clean_environment(built: Build, new_environment: Callable[[Path], Any], tmp_path: Path) -> None:
    env = new_environment(tmp_path / "env")
    wheels = {package.rpartition("/")[2]: built(package)[0] for package in PACKAGES}

    def plugins() -> dict[str, str]:
        listed = json.loads(env.dovetail("plugins", "list", "--json", cwd=tmp_path).stdout)
        return {p["id"]: p["state"] for p in listed["plugins"]}

    env.install(wheels["core"])
    assert plugins() == {}
    env.install(wheels["ops_onnx"], wheels["cpu_numpy"])
    standard = {"dovetail-ops-onnx/ops/ai.onnx", "dovetail-ops-onnx/hooks/onnx-forms"}
    assert set(plugins()) == {*standard, "dovetail-cpu-numpy/devices/numpy"}
    env.install(wheels["frontend_onnx"])
    assert {"onnx", "ml_dtypes"} & env.distributions() == set(), "models in ONNX are read with protobuf alone"
    env.install(wheels["frontend_pzkm"])
    refused = env.dovetail("demo", cwd=tmp_path, ok=False)
    assert refused.returncode == 2
    assert "Unknown command 'demo'" in refused.stderr
    assert "pip install 'dovetail[all]'" in refused.stderr
    env.install(wheels["tim_vx"], wheels["demo"])
    env.dovetail("demo", cwd=tmp_path)
    env.install(f"{wheels['gpu_opencl']}[pocl]", wheels["cpu_onednn"])
    demo = json.loads(env.dovetail("demo", "--json", cwd=tmp_path).stdout)
    types = {d["device"].split(".")[0] for d in demo["devices"]}
    assert types == {"NUMPY", "ONEDNN", "OPENCL"}
    for device in demo["devices"]:
        assert device["accuracy"] > 0.95
        assert device["max_difference"] < 1e-4
    assert (tmp_path / "dovetail-demo.html").is_file()

    before = plugins()
    env.uninstall("dovetail-gpu-opencl")
    assert plugins() == {k: v for k, v in before.items() if "opencl" not in k}
    devices = json.loads(env.dovetail("devices", "--json", cwd=tmp_path).stdout)
    assert {d["name"] for d in devices["devices"]} == {"NUMPY", "ONEDNN"}


WITHOUT = """
import sys
import numpy as np
import dovetail
from dovetail.op import Operator, TensorType

class Twice(Operator):
    domain = "acme"
    inputs = ("x: float32",)
    outputs = ("y: float32",)
    def infer(self, x: TensorType) -> TensorType:
        return x
    def reference(self, x):
        return x * np.float32(2)

g = dovetail.GraphBuilder()
model = g.model([g.node(Twice(), g.input("x", "float32", ["N", 3]))])
x = np.random.default_rng(7).standard_normal((5, 3)).astype(np.float32)
np.testing.assert_array_equal(dovetail.Core().compile_model(model, "NUMPY")(x)[0], x + x)
assert not any(name.startswith("dovetail_ops_onnx") for name in sys.modules)
"""


def test_without_the_standard_operators(built: Build, new_environment: Callable[[Path], Any], tmp_path: Path) -> None:
    """The core knows no operator pack: what does not need `dovetail-ops-onnx` works when it is not installed."""
    env = new_environment(tmp_path / "env")
    env.install(*(built(package)[0] for package in ("core", "plugins/ops_onnx", "plugins/cpu_numpy")))
    env.uninstall("dovetail-ops-onnx")
    listed = json.loads(env.dovetail("plugins", "list", "--json", cwd=tmp_path).stdout)["plugins"]
    assert [(p["id"], p["state"]) for p in listed] == [("dovetail-cpu-numpy/devices/numpy", "found")]
    env.python("-c", WITHOUT, cwd=tmp_path)
