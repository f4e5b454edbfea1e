"""A home in which nothing can be written: pyopencl and PoCL would not work at all, so they get along without it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dovetail_gpu_opencl import driver_caches

VARIABLES = ("POCL_CACHE_DIR", "PYOPENCL_NO_CACHE")

SCRIPT = """
import os
import numpy as np
import dovetail
from dovetail.op import GraphBuilder
from dovetail_ops_onnx.tanh import Tanh

g = GraphBuilder()
model = g.model([g.node(Tanh(), g.input("x", "float32", (5,)))])
x = np.linspace(-1, 1, 5, dtype=np.float32)
np.testing.assert_allclose(dovetail.Core(config=False).compile_model(model, "OPENCL")(x)[0], np.tanh(x), rtol=1e-5)
print("right in", os.environ["POCL_CACHE_DIR"])
"""


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / ".cache").write_text("a file, in which not even root makes folders")
    environment = {name: value for name, value in os.environ.items() if name not in (*VARIABLES, "XDG_CACHE_HOME")}
    environment |= {"HOME": str(tmp_path), "DOVETAIL_PLUGINS": "opencl"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "right in" in done.stdout
    assert not Path(done.stdout.rpartition(" ")[2].strip()).exists()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in VARIABLES:
        monkeypatch.setenv(name, "to be restored")
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "there"))
    monkeypatch.setattr(driver_caches, "atexit", SimpleNamespace(register=lambda *_: None))
    monkeypatch.setattr(driver_caches.tempfile, "mkdtemp", lambda **_: str(tmp_path / "made"))
    return tmp_path


def _given() -> list[str | None]:
    return [os.environ.get(name) for name in VARIABLES]


def test_a_usable_home_is_left_alone(home: Path) -> None:
    driver_caches.provide()
    assert _given() == [None, None]
    assert list(home.iterdir()) == []


def test_a_full_disk(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    driver_caches.provide()
    assert _given() == [str(home / "made"), "1"]


def test_what_the_user_said_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "not").write_text("")
    monkeypatch.setenv("POCL_CACHE_DIR", "/elsewhere")
    driver_caches.provide()
    assert _given() == ["/elsewhere", "1"]


def test_nothing_can_be_written_anywhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: str) -> str:
        raise FileNotFoundError("no usable temporary directory")

    (home / "not").write_text("")
    monkeypatch.setattr(driver_caches.tempfile, "mkdtemp", refuse)
    driver_caches.provide()
    assert _given() == [None, "1"]
