"""Shared by tests of installed packages: distributions built from this repository, and environments to install them into."""

import fcntl
import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable
from functools import cache
from pathlib import Path

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
    """A virtual environment of its own."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.bin = folder / "bin"

    def install(self, *what: str | Path) -> None:
        self.python("-m", "pip", "install", "-q", *what)

    def uninstall(self, *names: str) -> None:
        self.python("-m", "pip", "uninstall", "-q", "-y", *names)

    def python(self, *arguments: str | Path, cwd: Path | None = None, ok: bool = True) -> Done:
        return run(self.bin / "python", *arguments, cwd=cwd, ok=ok)

    def dovetail(self, *arguments: str, cwd: Path, ok: bool = True) -> Done:
        return run(self.bin / "dovetail", *arguments, cwd=cwd, ok=ok)


@pytest.fixture(scope="session")
def run_alone() -> Callable[..., Done]:
    """`run_alone(*command, cwd=None, ok=True)`: `run`, for tests of other folders."""
    return run


@pytest.fixture(scope="session")
def new_environment() -> Callable[[Path], Environment]:
    """`new_environment(folder)` makes a virtual environment there, with nothing in it but pip."""
    return Environment


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str | Path], tuple[Path, Path]]:
    """`built("core")` -> (wheel, sdist) of a folder of the repository, or of any other. Each is built once for all workers.

    The wheel is built from the sdist, as `python -m build` does.
    """
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    @cache
    def build(folder: str | Path) -> tuple[Path, Path]:
        out = shared / "dist" / re.sub(r"\W+", "_", str(ROOT / folder))
        out.parent.mkdir(exist_ok=True)
        with out.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not out.exists():
                part = out.with_suffix(".part")
                run(sys.executable, "-m", "build", "--no-isolation", "--outdir", part, ROOT / folder)
                part.rename(out)
        (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
        return wheel, sdist

    return build
