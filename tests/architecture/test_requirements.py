"""requirements.txt and requirements-dev.txt: each package of the repository, with extras that it defines: pip only warns."""

import re
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


def listed(name: str) -> list[tuple[str, str]]:
    """Folder and extras of the packages in a file."""
    return re.findall(r"^-e \./([\w/]+)(?:\[([\w,]+)\])?$", (ROOT / name).read_text(), re.MULTILINE)


def project(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    return found


def test_each_package_is_listed_with_extras_that_it_defines() -> None:
    packages = {
        "core",
        *(str(p.parent.relative_to(ROOT)) for d in ("plugins", "contrib") for p in ROOT.glob(f"{d}/*/pyproject.toml")),
    }
    lines = [*listed("requirements.txt"), *listed("requirements-dev.txt")]
    assert {folder for folder, _ in lines} == packages
    for folder, extras in lines:
        assert set(filter(None, extras.split(","))) <= project(folder).get("optional-dependencies", {}).keys(), folder


def test_what_the_extra_all_leaves_out_is_for_development_only() -> None:
    everything = {Requirement(text).name for text in project("core")["optional-dependencies"]["all"]} | {"dovetail"}
    assert {project(folder)["name"] for folder, _ in listed("requirements.txt")} == everything


def test_development_needs_the_others_too() -> None:
    """`.ci/run` installs the two files one after the other."""
    assert "-r requirements.txt" in (ROOT / "requirements-dev.txt").read_text().splitlines()
