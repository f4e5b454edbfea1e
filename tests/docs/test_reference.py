"""The reference: generated pages are up to date, and pages written by hand name what the code has."""

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import re
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
GENERATED = (
    "authoring.md",
    "cli.md",
    "compatibility.md",
    "errors.md",
    "hooks.md",
    "onnxruntime.md",
    "operators.md",
    "packages.md",
    "passes.md",
    "python.md",
)


@cache
def generator() -> ModuleType:
    """docs/generate.py as a module."""
    sys.path.insert(0, str(ROOT / "docs"))  # as for a script
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", GENERATED)
def test_generated_pages_are_up_to_date(page: str) -> None:
    written = (REFERENCE / page).read_text(encoding="utf-8")
    assert written == generator().PAGES[page](), f"{page} is out of date: run python docs/generate.py"


@pytest.mark.parametrize("page", GENERATED)
def test_no_example_is_rendered_as_text(page: str) -> None:
    """A docstring whose example is its end loses the indentation that makes it one."""
    lines = (REFERENCE / page).read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.endswith("::")] == []


def test_every_generated_page_is_compared() -> None:
    assert set(generator().PAGES) == set(GENERATED)


def test_compatibility_has_the_pythons_that_packages_claim_and_the_platforms_of_wheels() -> None:
    page = (REFERENCE / "compatibility.md").read_text(encoding="utf-8")
    project = (ROOT / "core" / "pyproject.toml").read_text(encoding="utf-8")
    claimed = re.findall(r"Python :: (3\.\d+)", project)
    assert len(claimed) > 3
    assert [version for version in claimed if f"| {version} |" not in page] == []
    assert all(f"| {name}, {machine} |" in page for name in ("Linux, musl", "Linux, glibc") for machine in ("x86_64", "aarch64"))


def test_every_error_code_has_a_section() -> None:
    page = (ROOT / "docs" / "how-to" / "troubleshoot.md").read_text(encoding="utf-8")
    kinds = [kind for kind, _ in generator().descendants(generator().errors.DovetailError, 0)]
    assert len(kinds) > 20
    wanted = sorted(f"{kind.code} {kind.__name__}" for kind in kinds)
    assert re.findall(r"^## (DT.+)$", page, re.MULTILINE) == wanted


def test_every_pass_says_what_it_does() -> None:
    lines = (REFERENCE / "passes.md").read_text(encoding="utf-8").splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
    assert {"`bind`", "`fuse_attention`", "`assign_layouts`"} <= {row[0] for row in cells}
    assert [row[0] for row in cells if len(row) != 6 or not row[5].endswith(".")] == []


def rows(page: str, heading: str) -> dict[str, list[str]]:
    """First cell -> the other cells, of the table below a heading of a reference page. Cells lose their backquotes."""
    section = (REFERENCE / page).read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {first: rest for first, *rest in lines[2:]}


@pytest.mark.parametrize("device", ["AUTO", "BATCH", "HETERO", "MULTI"])
def test_properties_of_virtual_devices(device: str) -> None:
    options = getattr(importlib.import_module("dovetail_virtual_devices.options"), f"{device.title()}Options")
    defaults = {f.name: str(f.default) for f in dataclasses.fields(options)}
    assert {name: cells[1] for name, cells in rows("properties.md", f"Properties of {device}").items()} == defaults


def test_properties_of_the_core() -> None:
    from dovetail.planning.options import CompileOptions

    defaults = {f.name: str(f.default) for f in dataclasses.fields(CompileOptions) if f.name.isupper()}
    defaults["MEMORY_LIMIT"] = "the machine's memory"
    defaults["PASSES"] = "those of `DOVETAIL_PASSES"  # `rows` strips the outer backquotes
    assert {name: cells[1] for name, cells in rows("properties.md", "Properties of the core").items()} == defaults


@pytest.mark.parametrize(("heading", "table"), [("Eltwise", "ELTWISE_ALGORITHMS"), ("Binary", "BINARY_ALGORITHMS")])
def test_formulas_of_post_ops(heading: str, table: str) -> None:
    from dovetail.graph import post_ops

    text = (REFERENCE / "post_ops.md").read_text(encoding="utf-8")
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    found = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section.replace("\\|", "|"), re.MULTILINE))
    assert found == getattr(post_ops, table)


@pytest.mark.parametrize(("device", "package"), [("NUMPY", "cpu_numpy"), ("ONEDNN", "cpu_onednn"), ("OPENCL", "gpu_opencl")])
def test_properties_of_devices(device: str, package: str) -> None:
    options = importlib.import_module(f"dovetail_{package}.options").Options
    names = {field.name for field in dataclasses.fields(options)}
    assert names
    assert set(rows("properties.md", f"Properties of {device}")) == names


def test_environment_variables() -> None:
    sources = [p for folder in ("core", "plugins", "contrib") for p in (ROOT / folder).rglob("src/**/*.py")]
    used = {name for path in sources for name in re.findall(r"\bDOVETAIL_[A-Z_]+", path.read_text(encoding="utf-8"))}
    assert len(sources) > 100
    assert set(rows("properties.md", "Environment variables")) == used


def test_benchmark_scripts() -> None:
    page = (REFERENCE / "benchmarks.md").read_text(encoding="utf-8")
    scripts = [p.name for p in (ROOT / "benchmarks").glob("[a-z]*.py")]
    assert len(scripts) > 4
    assert [name for name in scripts if f"benchmarks/{name}" not in page] == []


def test_every_state_of_a_plugin_is_explained() -> None:
    from typing import get_args

    from dovetail.plugins.records import State

    page = (ROOT / "docs" / "how-to" / "install_devices.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| ([a-z-]+) \|", page, re.MULTILINE)) == set(get_args(State))


def test_every_name_for_programs_is_described() -> None:
    import dovetail

    page = (REFERENCE / "python.md").read_text(encoding="utf-8")
    described = re.findall(r"^## dovetail\.(?:\w+\.)*(\w+)$", page, re.MULTILINE)
    linked = re.findall(r"^\| `dovetail\.(\w+)` \| \[", page, re.MULTILINE)
    assert set(dovetail.__all__) - {"__version__"} <= {*described, *linked}
    constants = re.findall(r"^\| `dovetail\.runtime\.([A-Z_]+)` \| \w", page, re.MULTILINE)
    assert set(importlib.import_module("dovetail.runtime").__all__) <= {*described, *constants}
    for member in ("compile_model", "cancel", "wait_all", "reshape"):
        assert re.search(rf"^- \*\*`{member}\(", page, re.MULTILINE), member


def test_every_module_that_packages_import_is_described() -> None:
    sources = [p for folder in ("plugins", "contrib") for p in (ROOT / folder).glob("*/src/**/*.py")]
    pattern = re.compile(r"^ *(?:from|import) (dovetail(?:\.\w+)*)", re.MULTILINE)
    imported = {name for path in sources for name in pattern.findall(path.read_text(encoding="utf-8"))}
    assert "dovetail.device" in imported
    hooks_have_a_page = {"dovetail.hookspecs"}
    assert {name for name in imported if not name.startswith("dovetail.testing.")} <= {*generator().PUBLIC, *hooks_have_a_page}


@pytest.mark.parametrize("module", generator().AUTHORING)
def test_every_name_for_authors_is_described(module: str) -> None:
    page = (REFERENCE / "authoring.md").read_text(encoding="utf-8")
    described = re.findall(r"^### (?:\w+\.)+(\w+)\n\n.+$", page, re.MULTILINE)
    described += re.findall(r"^\| `(\w+)` \| .", page, re.MULTILINE) + re.findall(r"\[(\w+)\]\((?:python|errors)\.md", page)
    assert set(importlib.import_module(module).__all__) <= set(described)


@pytest.mark.parametrize("module", generator().PUBLIC)
def test_every_public_name_has_a_docstring(module: str) -> None:
    imported = importlib.import_module(module)
    assert imported.__doc__
    missing = [
        name for name in imported.__all__ if not name.startswith("__") and not is_documented(name, getattr(imported, name))
    ]
    assert missing == []


def is_documented(name: str, value: object) -> bool:
    """A class or function by its own docstring, a constant or alias by the string below its assignment."""
    if isinstance(value, type) or (inspect.isroutine(value) and value.__name__ == name):  # click's options have another name
        # A dataclass without a docstring gets its signature as one.
        doc = value.__dict__.get("__doc__") if isinstance(value, type) else value.__doc__
        return bool(doc) and not str(doc).startswith(f"{name}(")
    return name in documented_constants()


@cache
def documented_constants() -> frozenset[str]:
    """The names that are assigned anywhere in the core's modules and followed by a string."""
    found = set()
    for path in (ROOT / "core" / "src" / "dovetail").rglob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for statement, following in pairwise(body):
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                found.update(assigned(statement))
    return frozenset(found)


def assigned(statement: ast.stmt) -> list[str]:
    """The plain names that a statement assigns."""
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return [statement.target.id] if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) else []
