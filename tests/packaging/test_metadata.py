"""The metadata of packages: requirements on each other, the extra `all`, licences and bills of material of vendored files."""

import hashlib
import json
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import dovetail

ROOT = Path(__file__).resolve().parents[2]
PROJECTS: dict[str, dict[str, Any]] = {
    str(path.parent.relative_to(ROOT)): tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    for path in (
        ROOT / "core" / "pyproject.toml",
        *(p for d in ("plugins", "contrib") for p in ROOT.glob(f"{d}/*/pyproject.toml")),
    )
}
OWN = {project["name"] for project in PROJECTS.values()}
VENDORED = sorted(p for p in ROOT.glob("*/*/src/*/**/vendor/*") if p.is_dir()) + sorted(
    p for p in ROOT.glob("core/src/*/**/vendor/*") if p.is_dir()
)
NOT_IN_ALL: dict[str, str] = {
    "dovetail-kserve": "KServe brings 60 packages, among them pandas and a client of Kubernetes, and requires protobuf below 7",
    "dovetail-ray": "Ray, Arrow and pandas are 500 MB",
}
"""Packages that `dovetail[all]` leaves out, with the reason: integrations that need large packages of others."""


def test_all_packages_name_the_same_build_system() -> None:
    """`.ci/run` installs one of them in an environment that has only this, and builds the others without."""
    found = [tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["build-system"] for folder in PROJECTS]
    assert found == [{"requires": ["hatchling>=1.28"], "build-backend": "hatchling.build"}] * len(PROJECTS)


@pytest.mark.parametrize("folder", PROJECTS)
def test_packages_require_each_other_in_a_range_that_has_this_version(folder: str) -> None:
    project = PROJECTS[folder]
    extras = [text for name, texts in project.get("optional-dependencies", {}).items() if name != "test" for text in texts]
    needed = [Requirement(text) for text in (*project.get("dependencies", ()), *extras)]
    own = [one for one in needed if one.name in OWN]
    assert own, "every package needs the core, which has the extra all"
    for one in own:
        assert {specifier.operator for specifier in one.specifier} == {">=", "<"}, f"{one}: give the oldest and the first refused"
        assert one.specifier.contains(dovetail.__version__), one


def test_all_has_every_package() -> None:
    named = {Requirement(text).name for text in PROJECTS["core"]["optional-dependencies"]["all"]}
    assert named | {"dovetail"} | set(NOT_IN_ALL) == OWN
    assert named & set(NOT_IN_ALL) == set()
    assert all(NOT_IN_ALL.values())


def test_vendored_folders_are_found() -> None:
    assert ROOT / "plugins/frontend_onnx/src/dovetail_frontend_onnx/vendor/onnx" in VENDORED
    # Files of others are in a folder of their project, which the test below reads.
    beside = {path.name for folder in {one.parent for one in VENDORED} for path in folder.iterdir() if path.is_file()}
    assert beside == {"README.md", "sbom.cdx.json"}


def test_files_with_the_licence_of_another_project_are_in_vendored_folders() -> None:
    """Licences that a package names besides its own are in the folders that have a bill of materials."""
    listed = [(ROOT / folder, path) for folder, project in PROJECTS.items() for path in project["license-files"]]
    named = [(folder, path) for folder, path in listed if path != "LICENSE"]
    assert named
    assert {(folder / path).parent for folder, path in named} == set(VENDORED)


@pytest.mark.parametrize("folder", VENDORED, ids=lambda path: path.name)
def test_vendored_files_have_a_licence_and_a_bill_of_materials(folder: Path, built: Callable[[str], tuple[Path, Path]]) -> None:
    (package,) = (name for name in PROJECTS if folder.is_relative_to(ROOT / name))
    with zipfile.ZipFile(built(package)[0]) as wheel:
        names = [name for name in wheel.namelist() if ".dist-info/" in name]
        (bill,) = (json.loads(wheel.read(name)) for name in names if "/sboms/" in name)
    assert any(name.endswith(f"licenses/{folder.relative_to(ROOT / package)}/LICENSE") for name in names)
    (component,) = (one for one in bill["components"] if one["name"] == folder.name)
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", PROJECTS[package]["name"])
    assert component["version"]
    assert component["licenses"]
    present = {hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir() if file.is_file()}
    recorded = {one["content"] for one in component["hashes"]}
    assert recorded
    assert recorded <= present
