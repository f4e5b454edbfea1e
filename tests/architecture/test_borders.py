"""The borders between parts: who may import whom, what core must not know, where things belong, how long a file may be."""

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "core" / "src" / "dovetail"
PACKAGES = {p.name: p for p in sorted(ROOT.glob("*/*/src/*")) if p.parts[-4] in ("plugins", "contrib") and p.is_dir()}

PUBLIC = re.compile(
    r"dovetail(\.(op|device|virtual|frontend|cache|cpus|locks|lru|dataclass|errors|graph|hookspecs|passes|testing|testing\.[a-z]\w*(\.[a-z]\w*)?))?"
)
"""The modules of the core that plugins may import: those for authors."""

VOCABULARY = "dovetail_ops_onnx"
"""The one plugin that others may import: graphs are written in its operators."""

PUBLIC_FOR_COMMANDS = re.compile(rf"{PUBLIC.pattern}|dovetail\.(command|plugins|plugins\.rules|runtime)")
"""The modules that packages with commands may import too: a command opens sessions, reads reports and lists plugins."""


def modules(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.py") if "__pycache__" not in p.parts)


@functools.cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    """(line, module) of every import in a file, those under TYPE_CHECKING and inside functions included."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.lineno, node.module))
    return tuple(found)


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
        "dovetail_frontend_gguf",
        "dovetail_ops_tim_vx",
        "dovetail_ops_onnx_reference",
        "dovetail_ops_onnxruntime_contrib",
        "dovetail_ops_onnx_ml",
        "dovetail_ops_onnx_training",
        "dovetail_ops_qonnx",
        "dovetail_demo",
        "dovetail_generate",
        "dovetail_onnxruntime",
        "dovetail_virtual_devices",
    } <= set(PACKAGES)


def test_core_imports_no_plugin() -> None:
    assert not offenders(modules(CORE), re.compile(r"(dovetail_|pyopencl|onnx|torch).*"))


@pytest.mark.parametrize("package", PACKAGES)
def test_plugins_import_public_core_modules_only(package: str) -> None:
    project = tomllib.loads((PACKAGES[package].parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    public = PUBLIC_FOR_COMMANDS if {"dovetail.commands", "dovetail.hooks"} & project.get("entry-points", {}).keys() else PUBLIC
    found = [
        f"{p.relative_to(ROOT)}:{line} imports {m}"
        for p in modules(PACKAGES[package])
        for line, m in imports(p)
        if m.partition(".")[0] == "dovetail" and not public.fullmatch(m)
    ]
    assert not found


@pytest.mark.parametrize("package", PACKAGES)
def test_plugins_never_import_each_other(package: str) -> None:
    others = "|".join(name for name in PACKAGES if name not in (package, VOCABULARY))
    assert not offenders(modules(PACKAGES[package]), re.compile(rf"({others})(\..*)?"))


@pytest.mark.parametrize("package", sorted(set(PACKAGES) - {VOCABULARY}))
def test_plugins_import_public_modules_of_the_vocabulary_only(package: str) -> None:
    assert not offenders(modules(PACKAGES[package]), re.compile(rf"{VOCABULARY}(\.\w+)*\._.*"))


def test_only_the_opencl_plugin_imports_pyopencl() -> None:
    rest = [path for name, path in PACKAGES.items() if name != "dovetail_gpu_opencl"]
    assert not offenders([m for path in rest for m in modules(path)], re.compile(r"pyopencl.*"))


PARTS = ("graph", "evaluate", "operators", "internal", "devices", "passes", "plugins", "planning", "runtime", "testing", "cli")
"""The parts of the core. Each imports only those before it, and modules outside of the parts."""


@pytest.mark.parametrize("part", PARTS)
def test_parts_import_only_those_before_them(part: str) -> None:
    later = PARTS[PARTS.index(part) + 1 :]
    paths = modules(CORE / part)
    assert paths
    assert not later or not offenders(paths, re.compile(rf"dovetail\.({'|'.join(later)})(\..*)?"))


def test_no_module_of_the_core_imports_itself_through_others() -> None:
    """No import circle, imports under TYPE_CHECKING and inside functions counted."""
    graph = _import_graph(CORE)
    circles = [component for component in _strongly_connected(graph) if len(component) > 1]
    assert circles == []


def test_a_circle_is_found(tmp_path: Path) -> None:
    package = tmp_path / "dovetail"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dovetail.b import x\n")
    (package / "b.py").write_text("def f():\n    import dovetail.c\n")
    (package / "c.py").write_text("from dovetail import a\n")
    found = [sorted(c) for c in _strongly_connected(_import_graph(package)) if len(c) > 1]
    assert found == [["dovetail.a", "dovetail.b", "dovetail.c"]]


def test_modules_of_the_core_list_the_names_that_others_import() -> None:
    files = {".".join(p.relative_to(CORE.parent).with_suffix("").parts): p for p in modules(CORE)}
    listed = {name: exported for name, path in files.items() if (exported := _exported(path)) is not None}
    assert len(listed) > 80
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} imports {alias.name}, which __all__ of {node.module} lacks"
        for path in files.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module in listed
        for alias in node.names
        if alias.name not in listed[node.module]
    ]
    assert not found


def _exported(path: Path) -> list[str] | None:
    """The names in `__all__`; None without it."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return None


def _import_graph(package: Path) -> dict[str, set[str]]:
    """Module -> the modules of the package that it names in imports."""
    files = {".".join(p.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__"): p for p in modules(package)}
    return {name: set(_named(path, files)) - {name} for name, path in files.items()}


def _named(path: Path, known: Collection[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield from (name for name in (inner if inner in known else node.module,) if name in known)


def _strongly_connected(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The components by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            found.append(stack[at:])
            del stack[at:]

    for name in graph:
        if name not in index:
            visit(name)
    return found


def test_operators_import_definitions_only() -> None:
    allowed = rf"dovetail\.(op|dataclass|errors|graph|locks|testing)|{VOCABULARY}(\..*)?"
    wrong = re.compile(rf"(?!({allowed})$)dovetail.*")
    folder = PACKAGES[VOCABULARY]
    assert not offenders([p for p in folder.glob("*.py") if p.name != "__init__.py"], wrong)


def test_core_names_no_pack() -> None:
    texts = {p.relative_to(CORE): p.read_text() for p in modules(CORE)}
    assert not [str(p) for p, text in texts.items() if VOCABULARY in text or "dovetail-ops-onnx" in text]


def test_every_hook_has_an_implementer_outside_of_the_tests() -> None:
    from dovetail.plugins.checks import HOOKS

    folders = [*PACKAGES.values(), ROOT / "examples"]
    sources = "".join(p.read_text() for folder in folders for p in modules(folder) if "tests" not in p.parts)
    assert [hook for hook in HOOKS if f"def {hook}(" not in sources] == []


def test_manifests_list_all_commands() -> None:
    import click

    from dovetail.plugins import PluginManager, check_manifest

    manager = PluginManager(config=False)
    manager.add_commands(click.Group())
    loaded = [record for record in manager.records() if record.kind in ("commands", "hooks") and record.state == "loaded"]
    assert len([record for record in loaded if record.provides]) > 3
    assert [text for record in loaded for text in check_manifest(record)] == []


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


def test_core_names_no_virtual_device() -> None:
    word = re.compile(r"\b(AUTO|HETERO|MULTI|BATCH)\b")
    files = [*modules(CORE), *CORE.rglob("*.tmpl")]
    assert [f"{p.relative_to(CORE)}: {line}" for p in files for line in p.read_text().splitlines() if word.search(line)] == []


def fresh(code: str) -> str:
    """Run code in a bare interpreter; returns what it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    return done.stdout.strip()


def test_import_dovetail_pulls_in_neither_numpy_nor_plugins() -> None:
    heavy = "[m for m in sys.modules if m.partition('.')[0] in ('numpy', 'pluggy', 'yaml', 'click', 'rich', 'onnx', 'pyopencl')"
    heavy += " or m.startswith('dovetail_')]"
    assert fresh(f"import sys, dovetail; dovetail.__version__; print({heavy})") == "[]"


def test_a_session_pulls_in_only_what_it_needs() -> None:
    heavy = "[m for m in sys.modules if m.partition('.')[0] in ('asyncio', 'ssl', 'yaml', 'click', 'onnx', 'email'"
    heavy += ", 'difflib', 'hashlib', 'html')"  # a few ms each
    heavy += " or m.startswith('dovetail_')]"
    assert fresh(f"import sys, dovetail; dovetail.Core(config=False); print({heavy})") == "[]"


def test_every_public_name_loads() -> None:
    import dovetail

    for name in dovetail.__all__:
        assert getattr(dovetail, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Cor'"):
        _ = dovetail.Cor  # the point of the test


def test_one_stem_for_each_operator() -> None:
    from dovetail.op import classes_in, stems_in
    from dovetail_ops_onnx.cases import CASES

    folder = ROOT / "core" / "tests" / "runtime"
    runtime_tests = "".join((folder / name).read_text() for name in ("test_control_flow.py", "test_sequences.py"))
    stems = [stem for stem in stems_in(VOCABULARY) if stem not in NOT_OPERATORS]
    assert len(stems) > 180
    for stem in stems:
        assert classes_in(VOCABULARY, stem), f"{stem}.py defines no operator of that stem"
        # Cases hold arrays: what takes sub-graphs and sequences is tested through the runtime.
        through_runtime = f"from {VOCABULARY}.{stem} import" in runtime_tests
        has_cases = stem in CASES or (PACKAGES[VOCABULARY] / "cases" / f"{stem}.py").is_file()
        assert has_cases or through_runtime, f"cases/{stem}.py is missing"


NOT_OPERATORS = {
    "by_length",
    "cached_attention",
    "conv_integer_to_float",
    "mat_mul_blocks",
    "mat_mul_digits",
    "mat_mul_integer_to_float",
    "mat_mul_rows",
    "byte_table",
    "pairwise_distances",
    "quantized",
    "row_digits",
    "phases",
    "runs",
    "segment_reduction",
    "spatial",
    "stacked_sequence",
    "take_rows",
}
"""Modules of the vocabulary that models cannot name: operators that only passes make, and what kernels share."""

INTERNAL = {
    *("convert", "copy", "fused_elementwise", "joined_moves", "joined_products", "moved_operands", "normalized_product"),
    *("normalized_sum", "packed_attention", "pointwise_depthwise", "post_op", "quantized_attention", "reorder", "rotated_halves"),
}
"""Stems of operators that the core and devices define themselves."""


@pytest.mark.parametrize("package", ["dovetail_cpu_numpy", "dovetail_cpu_onednn", "dovetail_gpu_opencl"])
def test_kernel_files_are_named_after_operators(package: str) -> None:
    stems = {p.stem for p in PACKAGES[VOCABULARY].glob("[a-z]*.py")} | INTERNAL
    kernels = {p.stem for p in (PACKAGES[package] / "kernels").glob("[a-z]*.py")}
    in_table = import_module(f"{package}.kernels._table").KERNELS.keys()
    assert kernels
    assert kernels | in_table <= stems
    assert kernels.isdisjoint(in_table)


def test_file_budgets() -> None:
    files = [p for folder in (CORE, *PACKAGES.values()) for p in modules(folder)]
    lengths = {p: len(p.read_text().splitlines()) for p in files}
    limits = {p: 250 if p.parent == PACKAGES[VOCABULARY] else 500 for p in files}
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


HELD_BY_OTHERS = {"locks.py", "interruptible.py", "making.py", "first_product.py", "batch.py", "statistics.py", "versions.py"}
"""Files with locks that one thread takes for another to free, or of a server, which never forks while it runs."""


def test_locks_and_cached_properties_are_free_in_forked_processes() -> None:
    """As those of `dovetail.locks` are: in a forked process nobody frees what a thread of its parent held."""
    wrong = re.compile(r"\bthreading\.(R?Lock|Condition)\(|functools import .*cached_property|functools\.cached_property")
    files = [path for folder in (CORE, *PACKAGES.values()) for path in modules(folder)]
    found = {path.name for path in files if wrong.search(path.read_text())}
    assert found == HELD_BY_OTHERS


def test_cpus_are_counted_in_one_place() -> None:
    """In a container the machine has more than a process may use."""
    files = [path for folder in (CORE, *PACKAGES.values()) for path in modules(folder)]
    counted = re.compile(r"cpu_count|sched_getaffinity")
    assert [path.relative_to(ROOT).as_posix() for path in files if counted.search(path.read_text())] == [
        "core/src/dovetail/cpus.py"
    ]
