"""Two builds of a package are equal bit for bit: wheel and sdist, whatever the folder, the time and the umask."""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [
    "core",
    *sorted(str(p.parent.relative_to(ROOT)) for d in ("plugins", "contrib") for p in ROOT.glob(f"{d}/*/pyproject.toml")),
]
VERSION = Path("core", "src", "dovetail", "_version.py")


def copied(package: str, to: Path) -> Path:
    """The package's sources in a tree of their own, with other times and permissions than those of the repository."""
    (to / VERSION).parent.mkdir(parents=True)
    shutil.copyfile(ROOT / VERSION, to / VERSION)
    shutil.copyfile(ROOT / ".gitignore", to / ".gitignore")  # hatchling looks above the package for what to leave out
    ignored = shutil.ignore_patterns("__pycache__", ".*_cache")
    shutil.copytree(ROOT / package, to / package, ignore=ignored, copy_function=shutil.copyfile, dirs_exist_ok=True)
    for path in (to / package).rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
        os.utime(path, (1_000_000_000, 1_000_000_000))
    return to / package


@pytest.mark.parametrize("package", PACKAGES)
def test_a_second_build_is_equal(
    package: str, built: Callable[[str], tuple[Path, Path]], run_alone: Callable[..., Any], tmp_path: Path
) -> None:
    """The first wheel was built from the sdist, the second is built from the tree."""
    folder, out = copied(package, tmp_path / "elsewhere"), tmp_path / "out"
    run_alone(sys.executable, "-m", "hatchling", "build", "-d", out, cwd=folder)
    first = {path.name: digest(path) for path in built(package)}
    assert {path.name: digest(path) for path in out.iterdir()} == first


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
