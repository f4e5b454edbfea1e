"""Packages that `dovetail new` writes, and those in examples/, install, list their plugins and pass their own tests."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner
from packaging.requirements import Requirement

import dovetail
from dovetail.cli import program

ROOT = Path(__file__).resolve().parents[2]

Build = Callable[[Path], tuple[Path, Path]]

NEW = {
    "op-pack": ("acme-ops", "ops", "acme.ops"),
    "device": ("acme-npu", "devices", "acme_npu"),
    "frontend": ("acme-format", "frontends", "acme_format"),
    "hooks": ("acme-tools", "hooks", "acme-tools"),
    "override": ("acme-relu", "overrides", "ai.onnx"),
}
"""Kind -> the name given, the kind of plugin, its entry."""


def generate(kind: str, folder: Path) -> Path:
    done = CliRunner().invoke(program, ["new", kind, NEW[kind][0], "--folder", str(folder)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return folder


def own_tests_pass(environment: Any, package: Path) -> int:
    """Run a package's tests in the environment; returns how many passed. None may be left out."""
    printed = environment.python("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=package).stdout
    counted = re.search(r"^(\d+) passed in ", printed, re.MULTILINE)
    assert counted, printed
    return int(counted[1])


def check_plugin(environment: Any, folder: Path, name: str, kind: str, key: str) -> None:
    """The plugin is listed, loads where nobody has to prefer it, and passes `dovetail plugins test`."""
    listed = json.loads(environment.dovetail("plugins", "list", "--json", cwd=folder).stdout)["plugins"]
    found = [(p["kind"], p["key"], p["state"]) for p in listed if p["distribution"] == name]
    state = "opt-in" if kind == "overrides" else "found"
    assert (kind, key, state) in found
    assert {state for _, _, state in found} == {state}
    for loaded in json.loads(environment.dovetail("plugins", "info", name, "--json", cwd=folder).stdout)["plugins"]:
        assert loaded["state"] == ("opt-in" if kind == "overrides" else "loaded")
        assert bool(loaded["provides"]) == (kind in ("ops", "devices", "hooks"))
    tested = json.loads(environment.dovetail("plugins", "test", name, "--json", cwd=folder).stdout)["plugins"]
    assert len(tested) == len(found)
    assert all(one["ok"] for one in tested)
    assert all(one["counts"]["passed"] > 10 for one in tested)


SAMPLE = pytest.mark.exhaustive(0.15)
"""About one of the packages a commit is installed and run: the tutorials write, install and run a pack and a device, too."""


@SAMPLE
@pytest.mark.parametrize("kind", NEW)
def test_a_generated_package_works_unchanged(kind: str, environment: Any, built: Build, tmp_path: Path) -> None:
    """The environment has the oldest core that the package claims to work with: the version that generated it."""
    folder = generate(kind, tmp_path / "package")
    requirements = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["dependencies"]
    floors = [str(one) for text in requirements if text.startswith("dovetail") for one in Requirement(text).specifier]
    assert f">={dovetail.__version__}" in floors
    environment.install(built(folder)[0])
    check_plugin(environment, tmp_path, *NEW[kind])
    assert own_tests_pass(environment, folder) > 6  # more with each OpenCL device


@SAMPLE
@pytest.mark.parametrize(
    ("example", "plugin"),
    [
        ("op_pack", ("example-vision-ops", "ops", "com.example.vision")),
        ("toy_device", ("example-toy-trace", "devices", "trace")),
    ],
)
def test_the_examples_work(example: str, plugin: tuple[str, str, str], environment: Any, built: Build, tmp_path: Path) -> None:
    environment.install(built(ROOT / "examples" / example)[0])
    check_plugin(environment, tmp_path, *plugin)
    assert own_tests_pass(environment, ROOT / "examples" / example) > 20


# --- what is written -------------------------------------------------------------------------------------------------


def code_lines(file: Path) -> int:
    """Lines that are not empty, no comment, and in no docstring."""
    lines = {i for i, line in enumerate(file.read_text().splitlines(), 1) if line.strip() and not line.strip().startswith("#")}
    for node in ast.walk(ast.parse(file.read_text())):
        body = getattr(node, "body", None)
        first = body[0] if isinstance(body, list) and body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            lines -= set(range(first.lineno, (first.end_lineno or 0) + 1))
    return len(lines)


def test_an_elementwise_operator_with_its_test_takes_30_lines(tmp_path: Path) -> None:
    pack = generate("op-pack", tmp_path / "pack")
    operator, tests = code_lines(pack / "src/acme_ops/snake.py"), code_lines(pack / "tests/test_conformance.py")
    assert (operator > 15, tests > 0) == (True, True)
    assert operator + tests <= 30


def test_the_toy_device_takes_about_a_hundred_lines() -> None:
    assert code_lines(ROOT / "examples/toy_device/src/toy_trace/__init__.py") <= 100


def borders() -> ModuleType:
    """tests/architecture/test_borders.py as a module."""
    spec = importlib.util.spec_from_file_location("borders", ROOT / "tests" / "architecture" / "test_borders.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("package", [*NEW, "examples/op_pack", "examples/toy_device"])
def test_only_public_names_are_imported(package: str, tmp_path: Path) -> None:
    folder = ROOT / package if "/" in package else generate(package, tmp_path / "package")
    rules = borders()
    files = list(folder.rglob("*.py"))
    imported = {(line, module) for file in files for line, module in rules.imports(file)}
    own = {p.name for p in (folder / "src").iterdir()}
    allowed = {*own, "dovetail", "click", "dovetail_ops_onnx", "numpy", "onnx", "pytest", *sys.stdlib_module_names}
    assert any(module.startswith("dovetail.") for _, module in imported)
    assert {m for _, m in imported if m.partition(".")[0] not in allowed} == set()
    public = rules.PUBLIC_FOR_COMMANDS if package == "hooks" else rules.PUBLIC
    assert {m for _, m in imported if m.partition(".")[0] == "dovetail" and not public.fullmatch(m)} == set()
    private = [f"{f.name}: {n.name}" for f in files for node in ast.walk(ast.parse(f.read_text()))
               if isinstance(node, ast.ImportFrom) for n in node.names if n.name.startswith("_")]  # fmt: skip
    assert private == []


def test_generated_code_is_typed(tmp_path: Path) -> None:
    """One run for all: most of its time goes into the types of the core."""
    for kind in NEW:
        generate(kind, tmp_path / kind)
    passes("mypy", "--strict", *(f"{kind}/src" for kind in NEW), folder=tmp_path)


def test_generated_code_is_tidy(tmp_path: Path) -> None:
    """One run for all, as above."""
    for kind in NEW:
        generate(kind, tmp_path / kind)
    roots = [{"root": kind, "extraPaths": [f"{kind}/src"]} for kind in NEW]
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"executionEnvironments": roots}))
    passes("pyright", "--pythonpath", sys.executable, ".", folder=tmp_path)
    for kind in NEW:
        passes("ruff", "check", "--isolated", "--line-length=120", *RULES, ".", folder=tmp_path / kind)
        passes("ruff", "format", "--isolated", "--line-length=120", "--check", ".", folder=tmp_path / kind)


RULES = ("--select=E,F,W,I,B,UP,SIM,RUF", "--ignore=RUF012")


def passes(module: str, *arguments: str, folder: Path) -> None:
    """The program ends with 0."""
    done = subprocess.run([sys.executable, "-m", module, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
