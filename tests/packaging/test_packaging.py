"""Every package builds a wheel and an sdist that work when they are installed alone beside the core, in a clean environment."""

import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [
    "core",
    "plugins/cpu_numpy",
    "plugins/cpu_onednn",
    "plugins/gpu_opencl",
    "plugins/frontend_onnx",
    "plugins/frontend_openvino",
    "plugins/frontend_pzkm",
    "contrib/tim_vx",
    "contrib/onnx_reference",
    "contrib/onnxruntime_contrib",
    "contrib/onnx_ml",
    "contrib/onnx_training",
    "contrib/demo",
]

Build = Callable[[str], tuple[Path, Path]]


@pytest.mark.parametrize("package", PACKAGES)
def test_wheel_and_sdist_hold_what_they_need(built: Build, package: str) -> None:
    wheel, sdist = built(package)
    inside = set(zipfile.ZipFile(wheel).namelist())
    (source,) = (ROOT / package / "src").iterdir()
    wanted = {str(p.relative_to(source.parent)) for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert wanted <= inside
    assert any(name.endswith("/py.typed") for name in inside)
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    with tarfile.open(sdist) as archive:
        names = {n.partition("/")[2] for n in archive.getnames()}
    assert {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"} <= names


def test_each_wheel_works_in_a_clean_environment(built: Build, new_environment: Callable[[Path], Any], tmp_path: Path) -> None:
    env = new_environment(tmp_path / "env")
    core, numpy_device, onednn, opencl, onnx, _, pzkm, tim_vx, *_ = (built(p)[0] for p in PACKAGES)

    def plugins() -> dict[str, str]:
        listed = json.loads(env.dovetail("plugins", "list", "--json", cwd=tmp_path).stdout)
        return {p["id"]: p["state"] for p in listed["plugins"]}

    env.install(core)
    assert plugins() == {}
    env.install(numpy_device)
    assert set(plugins()) == {"dovetail-cpu-numpy/devices/numpy"}
    env.install(onnx, pzkm)
    refused = env.dovetail("demo", cwd=tmp_path, ok=False)
    assert refused.returncode == 2
    assert "There is no command 'demo'" in refused.stderr
    assert "dovetail.hooks" in refused.stderr
    env.install(tim_vx, built("contrib/demo")[0])
    env.dovetail("demo", cwd=tmp_path)
    env.install(f"{opencl}[pocl]", onednn)
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
    env.dovetail("demo", cwd=tmp_path)
