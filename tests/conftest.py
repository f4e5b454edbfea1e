"""Shared by tests of installed packages: distributions built from this repository, and environments to install them into."""

import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]

Done = subprocess.CompletedProcess[str]


def run(*command: str | Path, cwd: Path | None = None, ok: bool = True) -> Done:
    """Run a command outside this test's environment; raises with what it printed when it fails and `ok` is true."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV") and not k.startswith("DOVETAIL_")}
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, env=kept, timeout=1800)
    if ok and done.returncode != 0:
        raise AssertionError(f"{command}\n{done.stdout}\n{done.stderr}")
    return done


class Environment:
    """A new virtual environment, with what the one in the folder `below` has. The tests' own pip installs into it."""

    def __init__(self, folder: Path, below: Path | None = None, *, with_pip: bool = False) -> None:
        venv.create(folder, with_pip=with_pip)
        self.bin = folder / "bin"
        (self.site,) = folder.glob("lib/python*/site-packages")
        if below is not None:
            (site,) = below.glob("lib/python*/site-packages")
            (self.site / "below.pth").write_text(f"{site}\n")
            self._take_scripts(below / "bin")

    def _take_scripts(self, others: Path) -> None:
        for script in others.iterdir():
            text = b"" if script.is_symlink() else script.read_bytes()
            if text.startswith(b"#!") and not (self.bin / script.name).exists():
                shutil.copy(script, self.bin)
                (self.bin / script.name).write_bytes(text.replace(bytes(others), bytes(self.bin), 1))

    def pip(self, *arguments: str | Path) -> Done:
        return run(sys.executable, "-m", "pip", "--python", self.bin / "python", *arguments)

    def install(self, *what: str | Path) -> None:
        self.pip("install", "-q", "--no-compile", *what)  # compiling all of NumPy takes longer than installing it

    def uninstall(self, *names: str) -> None:
        self.pip("uninstall", "-q", "-y", *names)

    def distributions(self) -> set[str]:
        """The names of what is installed in it, without what it has from below."""
        return {folder.name.partition("-")[0] for folder in self.site.glob("*.dist-info")}

    def python(self, *arguments: str | Path, cwd: Path | None = None, ok: bool = True) -> Done:
        return run(self.bin / "python", *arguments, cwd=cwd, ok=ok)

    def dovetail(self, *arguments: str, cwd: Path, ok: bool = True) -> Done:
        return run(self.bin / "dovetail", *arguments, cwd=cwd, ok=ok)


@pytest.fixture(scope="session")
def run_alone() -> Callable[..., Done]:
    """`run_alone(*command, cwd=None, ok=True)`: `run`, for tests of other folders."""
    return run


@pytest.fixture(scope="session")
def new_environment() -> Callable[..., Environment]:
    """`new_environment(folder)` makes an empty virtual environment there."""
    return Environment


@pytest.fixture(scope="session")
def once_for_all(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """`once_for_all(name, make)`: a folder that `make(folder)` fills, once for all workers."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def folder(name: str, make: Callable[[Path], object]) -> Path:
        out = shared / name
        out.parent.mkdir(exist_ok=True)
        with out.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = out.with_suffix(".done")
            if not done.exists():
                make(out)
                done.touch()
        return out

    return folder


@pytest.fixture(scope="session")
def built(once_for_all: Callable[[str, Callable[[Path], object]], Path]) -> Callable[[str | Path], tuple[Path, Path]]:
    """`built("core")` -> (wheel, sdist) of a folder of the repository, or of any other. Each is built once for all workers.

    The wheel is built from the sdist, as `python -m build` does.
    """

    @cache
    def build(folder: str | Path) -> tuple[Path, Path]:
        def make(out: Path) -> None:
            run(sys.executable, "-m", "build", "--no-isolation", "--skip-dependency-check", "--outdir", out, ROOT / folder)

        out = once_for_all("dist/" + re.sub(r"\W+", "_", str(ROOT / folder)), make)
        (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
        return wheel, sdist

    return build


@pytest.fixture(scope="session")
def pages() -> ModuleType:
    """tests/docs/test_pages.py as a module: how it finds the blocks of a page, runs them and compares what they print."""
    spec = importlib.util.spec_from_file_location("pages", ROOT / "tests" / "docs" / "test_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up there
        spec.loader.exec_module(module)
    return module
