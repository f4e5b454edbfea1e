"""Every package builds a wheel and an sdist that work when they are installed alone beside the core, in a clean environment."""

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["core", "plugins/cpu_numpy", "plugins/gpu_opencl", "plugins/frontend_onnx", "contrib/tim_vx"]
EXTRAS = {"plugins/gpu_opencl": "[pocl]"}


def run(*command: str | Path, cwd: Path | None = None, ok: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, env=environment, timeout=900)
    if ok and done.returncode != 0:
        raise AssertionError(f"{command}\n{done.stdout}\n{done.stderr}")
    return done


class Environment:
    """A virtual environment of its own."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.bin = folder / "bin"

    def install(self, *what: str | Path) -> None:
        run(self.bin / "python", "-m", "pip", "install", "-q", *what)

    def uninstall(self, name: str) -> None:
        run(self.bin / "python", "-m", "pip", "uninstall", "-q", "-y", name)

    def dovetail(self, *arguments: str, cwd: Path, ok: bool = True) -> subprocess.CompletedProcess[str]:
        return run(self.bin / "dovetail", *arguments, cwd=cwd, ok=ok)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """Package -> (wheel, sdist). The wheel is built from the sdist, as `python -m build` does."""
    made = {}
    for package in PACKAGES:
        out = tmp_path_factory.mktemp("dist")
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT / package)
        (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
        made[package] = (wheel, sdist)
    return made


@pytest.mark.parametrize("package", PACKAGES)
def test_wheel_and_sdist_hold_what_they_need(built: dict[str, tuple[Path, Path]], package: str) -> None:
    wheel, sdist = built[package]
    inside = set(zipfile.ZipFile(wheel).namelist())
    (source,) = (ROOT / package / "src").iterdir()
    wanted = {str(p.relative_to(source.parent)) for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert wanted <= inside
    assert any(name.endswith("/py.typed") for name in inside)
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    with tarfile.open(sdist) as archive:
        names = {n.partition("/")[2] for n in archive.getnames()}
    assert {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"} <= names


def test_each_wheel_works_in_a_clean_environment(built: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    env = Environment(tmp_path / "env")
    core, numpy_device, opencl, onnx, tim_vx = (built[p][0] for p in PACKAGES)

    def plugins() -> dict[str, str]:
        listed = json.loads(env.dovetail("plugins", "list", "--json", cwd=tmp_path).stdout)
        return {p["id"]: p["state"] for p in listed["plugins"]}

    env.install(core)
    assert plugins() == {}
    env.install(numpy_device)
    assert set(plugins()) == {"dovetail-cpu-numpy/devices/numpy"}
    env.install(onnx)
    refused = env.dovetail("demo", cwd=tmp_path, ok=False)
    assert refused.returncode == 1
    assert "tim.vx" in refused.stderr
    env.install(tim_vx)
    env.dovetail("demo", cwd=tmp_path)
    env.install(f"{opencl}[pocl]")
    demo = json.loads(env.dovetail("demo", "--json", cwd=tmp_path).stdout)
    types = {d["device"].split(".")[0] for d in demo["devices"]}
    assert types == {"NUMPY", "OPENCL"}
    for device in demo["devices"]:
        assert device["accuracy"] > 0.95
        assert device["max_difference"] < 1e-4
    assert (tmp_path / "dovetail-demo.html").is_file()

    before = plugins()
    env.uninstall("dovetail-gpu-opencl")
    assert plugins() == {k: v for k, v in before.items() if "opencl" not in k}
    devices = json.loads(env.dovetail("devices", "--json", cwd=tmp_path).stdout)
    assert [d["name"] for d in devices["devices"]] == ["NUMPY"]
    env.dovetail("demo", cwd=tmp_path)
