"""The README: its example runs, its table of packages is that of the repository."""

import contextlib
import io
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import dovetail

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FOLDERS = [ROOT / "core", *sorted(p.parent for kind in ("plugins", "contrib") for p in ROOT.glob(f"{kind}/*/pyproject.toml"))]
PROJECTS = {f.relative_to(ROOT).as_posix(): tomllib.loads((f / "pyproject.toml").read_text(encoding="utf-8")) for f in FOLDERS}


def after(comment: str) -> str:
    """The text of the README behind a comment that tests look for."""
    _, found, rest = README.partition(f"<!-- {comment}")
    assert found, f"README.md has no comment <!-- {comment} -->"
    return rest.partition("-->\n")[2]


def test_example() -> None:
    match = re.match(r"```python\n(.*?)^```$", after("example:"), re.MULTILINE | re.DOTALL)
    assert match is not None, "a block of Python must follow the comment"
    code = match[1]
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "README.md", "exec"), namespace)
    result, *report = printed.getvalue().splitlines()
    assert result == "[[2. 4. 6.]]"
    assert len(report) == 1
    assert re.fullmatch(r"scale \(com.acme::Scale\) on [A-Z.0-9]+ by ref of session \(__main__\)", report[0])


def table() -> dict[str, tuple[str, str]]:
    """Package -> folder and the third cell."""
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \| (.*) \|$", after("packages:"), re.MULTILINE)
    return {name: (folder, brings) for name, folder, brings in rows}


def test_packages_are_those_of_the_repository() -> None:
    assert {name: folder for name, (folder, _) in table().items()} == {
        project["project"]["name"]: folder for folder, project in PROJECTS.items()
    }


@pytest.mark.parametrize("folder", PROJECTS)
def test_table_names_what_a_package_provides(folder: str) -> None:
    project = PROJECTS[folder]["project"]
    groups = project.get("entry-points", {})
    brings = table()[project["name"]][1]
    assert all(f"`{name.upper()}`" in brings for name in groups.get("dovetail.devices", {}))
    assert all(f"`.{name}`" in brings for name in groups.get("dovetail.frontends", {}))
    assert all(f"`{name}`" in brings for name in groups.get("dovetail.ops", {}))
    for extra in project.get("optional-dependencies", {}):
        assert extra in ("test", "testing") or f"`[{extra}]`" in brings


def test_counts() -> None:
    from dovetail_ops_onnx import find_all

    words = dict(enumerate(("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")))
    groups = [project["project"].get("entry-points", {}) for project in PROJECTS.values()]
    devices, formats = (sum(len(g.get(f"dovetail.{kind}", {})) for g in groups) for kind in ("devices", "frontends"))
    state = " ".join(README.partition("## State")[2].split())
    assert f"There are {words[devices]} devices, {words[formats]} formats," in state
    claimed = re.search(r"more than (\d+) of the operators", state)
    assert claimed is not None
    assert int(claimed[1]) < len({operator.op_type for operator in find_all()}) < int(claimed[1]) + 20


@pytest.mark.parametrize("folder", PROJECTS)
def test_every_package_has_its_own_pages(folder: str) -> None:
    project = PROJECTS[folder]["project"]
    readme = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    assert readme.startswith(f"# {project['name']}\n")
    assert len(readme.split()) > 60, "a README says what the package does and how to use it"
    changelog = (ROOT / folder / "CHANGELOG.md").read_text(encoding="utf-8")
    version = project.get("version") or dovetail.__version__  # the core's is read from its module
    assert re.search(rf"^## {re.escape(version)}\b.*\n\n(?:### .+\n\n)?- ", changelog, re.MULTILINE), "what is in this version?"


@pytest.mark.parametrize("folder", PROJECTS)
def test_metadata_is_that_of_the_others(folder: str) -> None:
    core, project = PROJECTS["core"], PROJECTS[folder]
    for key in ("readme", "requires-python", "classifiers", "dynamic"):
        assert project["project"].get(key) == core["project"][key], f"{key}; versions are those of core: see contrib/demo"
    # Folders of others that a package carries have their licences in them: Apache-2.0, or MIT.
    vendored = sorted((ROOT / folder).glob("src/*/vendor/*/LICENSE"))
    others = " AND MIT" if any("Permission is hereby granted" in path.read_text(encoding="utf-8") for path in vendored) else ""
    assert project["project"]["license"] == core["project"]["license"] + others
    assert project["project"]["license-files"][0] == "LICENSE"
    assert {path.relative_to(ROOT / folder).as_posix() for path in vendored} <= {*project["project"]["license-files"]}
    assert {path.relative_to(ROOT / folder).as_posix() for path in vendored} <= {*project["project"]["license-files"]}
    assert (ROOT / folder / project["tool"]["hatch"]["version"]["path"]).samefile(ROOT / "core/src/dovetail/_version.py")
    assert project["build-system"] == core["build-system"]
    assert project["tool"]["hatch"]["build"]["targets"]["sdist"] == core["tool"]["hatch"]["build"]["targets"]["sdist"]
    assert (ROOT / folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert folder == "core" or any(needed.startswith("dovetail>=") for needed in project["project"]["dependencies"])
