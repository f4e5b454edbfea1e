"""The borders of the house: who may import whom, what core must not know, where a thing must stand, how long a file may be."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "core" / "src" / "dovetail"
PACKAGES = {p.name: p for p in sorted(ROOT.glob("*/*/src/*")) if p.parts[-4] in ("plugins", "contrib") and p.is_dir()}

PUBLIC = re.compile(
    r"dovetail(\.(op|device|hosting|frontend|cache|errors|formula|graph|hookspecs|spatial|testing"
    r"|ops\.[a-z]\w*|testing\.[a-z]\w*(\.[a-z]\w*)?))?"
)
"""What plugins and packs may import of the core: the author-facing modules, and operator classes."""

PUBLIC_FOR_COMMANDS = re.compile(rf"{PUBLIC.pattern}|dovetail\.(command|runtime)")
"""What packages that add commands may import: a command is also a program that opens sessions and reads reports."""


def modules(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.py") if "__pycache__" not in p.parts)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of every import in a file, those under TYPE_CHECKING and inside functions included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module


def offenders(paths: list[Path], wrong: re.Pattern[str]) -> list[str]:
    return [f"{p.relative_to(ROOT)}:{line} imports {m}" for p in paths for line, m in imports(p) if wrong.fullmatch(m)]


def test_the_tree_is_where_these_tests_look() -> None:
    assert len(modules(CORE)) > 80
    assert {
        "dovetail_cpu_numpy",
        "dovetail_gpu_opencl",
        "dovetail_frontend_onnx",
        "dovetail_frontend_openvino",
        "dovetail_frontend_pzkm",
        "dovetail_ops_tim_vx",
        "dovetail_ops_onnx_reference",
        "dovetail_ops_onnxruntime_contrib",
        "dovetail_ops_onnx_ml",
        "dovetail_ops_onnx_training",
        "dovetail_demo",
    } <= set(PACKAGES)


def test_core_imports_no_plugin() -> None:
    assert not offenders(modules(CORE), re.compile(r"(dovetail_|pyopencl|onnx|torch).*"))


@pytest.mark.parametrize("package", PACKAGES)
def test_plugins_import_public_core_modules_only(package: str) -> None:
    project = tomllib.loads((PACKAGES[package].parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    public = PUBLIC_FOR_COMMANDS if "dovetail.hooks" in project.get("entry-points", {}) else PUBLIC
    found = [
        f"{p.relative_to(ROOT)}:{line} imports {m}"
        for p in modules(PACKAGES[package])
        for line, m in imports(p)
        if m.partition(".")[0] == "dovetail" and not public.fullmatch(m)
    ]
    assert not found


@pytest.mark.parametrize("package", PACKAGES)
def test_plugins_never_import_each_other(package: str) -> None:
    others = "|".join(name for name in PACKAGES if name != package)
    assert not offenders(modules(PACKAGES[package]), re.compile(rf"({others})(\..*)?"))


def test_only_the_opencl_plugin_imports_pyopencl() -> None:
    rest = [path for name, path in PACKAGES.items() if name != "dovetail_gpu_opencl"]
    assert not offenders([m for path in rest for m in modules(path)], re.compile(r"pyopencl.*"))


@pytest.mark.parametrize("below", ["ops", "graph", "passes", "op.py", "device.py", "errors.py", "frontend.py", "spatial.py"])
def test_definitions_never_import_the_runtime(below: str) -> None:
    path = CORE / below
    paths = modules(path) if path.is_dir() else [path]
    assert paths
    assert not offenders(paths, re.compile(r"dovetail\.(runtime|plugins|cli)(\..*)?"))


def test_operators_import_definitions_only() -> None:
    allowed = r"dovetail\.(op|spatial|errors|graph(\..*)?|ops\..*)"
    wrong = re.compile(rf"(?!{allowed}$)dovetail.*")
    assert not offenders([p for p in modules(CORE / "ops") if p.name != "__init__.py"], wrong)


def code_of(path: Path) -> list[str]:
    """The file's lines as the compiler sees them: no comments, no docstrings (those may give examples)."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [n for n in body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))] or [ast.Pass()]
    return ast.unparse(tree).splitlines()


def test_core_holds_no_device_vendor_or_plugin_name() -> None:
    names = re.compile(
        r"NUMPY|OPENCL|ONEDNN|pyopencl|tim[._]vx|'numpy'|(?i:pocl|nvidia|intel|openvino)|dovetail[-_]((cpu|gpu|frontend|ops)[-_][a-z]|demo)"
    )
    found = {f"{p.relative_to(CORE)}: {line.strip()}" for p in modules(CORE) for line in code_of(p) if names.search(line)}
    assert found == {"plugins/selection.py: ESSENTIAL = ('devices', 'numpy')"}


def fresh(code: str) -> str:
    """Run code in a bare interpreter; returns what it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    return done.stdout.strip()


def test_import_dovetail_pulls_in_neither_numpy_nor_plugins() -> None:
    heavy = "[m for m in sys.modules if m.partition('.')[0] in ('numpy', 'pluggy', 'yaml', 'click', 'rich', 'onnx', 'pyopencl')"
    heavy += " or m.startswith('dovetail_')]"
    assert fresh(f"import sys, dovetail; dovetail.__version__; print({heavy})") == "[]"


def test_a_session_pulls_in_only_what_it_needs() -> None:
    heavy = "[m for m in sys.modules if m.partition('.')[0] in ('asyncio', 'ssl', 'yaml', 'click', 'onnx', 'email')"
    heavy += " or m.startswith('dovetail_')]"
    assert fresh(f"import sys, dovetail; dovetail.Core(config=False); print({heavy})") == "[]"


def test_every_public_name_loads() -> None:
    import dovetail

    for name in dovetail.__all__:
        assert getattr(dovetail, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Cor'"):
        _ = dovetail.Cor  # the point of the test


def test_one_stem_for_each_operator() -> None:
    import importlib

    from dovetail.names import stem_of
    from dovetail.op import Operator

    folder = ROOT / "core" / "tests" / "runtime"
    runtime_tests = "".join((folder / name).read_text() for name in ("test_control_flow.py", "test_sequences.py"))
    for path in sorted((CORE / "ops").glob("[a-z]*.py")):
        module = importlib.import_module(f"dovetail.ops.{path.stem}")
        own = [
            c
            for c in vars(module).values()
            if isinstance(c, type) and issubclass(c, Operator) and c.__module__ == module.__name__
        ]
        assert own, f"{path.name} defines no operator"
        assert {stem_of(c.op_type) for c in own} == {path.stem}, path.name
        # Cases hold arrays: what takes sub-graphs and sequences is tested through the runtime.
        through_runtime = f"from dovetail.ops.{path.stem} import" in runtime_tests
        assert (CORE / "testing" / "cases" / path.name).is_file() or through_runtime, f"testing/cases/{path.name} is missing"


@pytest.mark.parametrize("package", ["dovetail_cpu_numpy", "dovetail_gpu_opencl"])
def test_kernel_files_are_named_after_operators(package: str) -> None:
    stems = {p.stem for p in (CORE / "ops").glob("[a-z]*.py")}
    kernels = {p.stem for p in (PACKAGES[package] / "kernels").glob("[a-z]*.py")}
    assert kernels
    assert kernels <= stems


def test_file_budgets() -> None:
    files = [p for folder in (CORE, *PACKAGES.values()) for p in modules(folder)]
    lengths = {p: len(p.read_text().splitlines()) for p in files}
    limits = {p: 250 if p.parent == CORE / "ops" else 500 for p in files}
    assert not [f"{p.relative_to(ROOT)}: {n} lines" for p, n in lengths.items() if n > limits[p]]


def test_every_public_function_and_class_has_a_docstring() -> None:
    missing = []
    for path in [p for folder in (CORE, *PACKAGES.values()) for p in modules(folder)]:
        tree = ast.parse(path.read_text())
        if not ast.get_docstring(tree):
            missing.append(f"{path.relative_to(ROOT)}")
        public = [n for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef) and not n.name.startswith("_")]
        missing += [f"{path.relative_to(ROOT)}:{n.lineno} {n.name}" for n in public if not ast.get_docstring(n)]
    # A hook implementation or case list does what its specification says, in the one place where that is written.
    said_elsewhere = re.compile(r".* (dovetail_\w+|cases)$")
    assert not [m for m in missing if not said_elsewhere.match(m)]
