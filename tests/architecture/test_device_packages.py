"""Device packages: the same file names for the same roles, no knowledge of operators outside the kernels, and no pack needed."""

import ast
import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

ROLES = {
    "device.py": "chooses kernels and compiles graphs",
    "executable.py": "a compiled graph, shared by its requests",
    "request.py": "one inference at a time",
    "options.py": "the properties of the device, checked",
    "kernels": "the ordered list of kernels for each operator",
    "post_ops.py": "chains of post-ops fused into a kernel",
    "elementwise.py": "operators that are such a chain themselves",
    "reorder.py": "values in other memory layouts; the node that changes a layout is kernels/reorder.py",
    "view.py": "operators that only change a shape",
    "hosting.py": "kernels that the class of an operator provides: HostKernel on CPUs, OpenCLKernel on OPENCL",
    "memory.py": "allocates what requests and executables hold",
    "kernel.py": "the base class of the kernels",
}
"""The files of each device package. `reference.py`, which runs the NumPy reference where no kernel accepts a node, is not common:
OPENCL leaves such nodes to another device."""


def _packages() -> dict[str, Path]:
    """The packages whose entry points define devices with kernels, by module."""
    found = {}
    for project in sorted(ROOT.glob("*/*/pyproject.toml")):
        entries = tomllib.loads(project.read_text(encoding="utf-8"))["project"].get("entry-points", {})
        for module in entries.get("dovetail.devices", {}).values():
            folder = project.parent / "src" / module
            # A device that only passes graphs on to others, and the toy device of the examples, have no kernels.
            if (folder / "kernels").is_dir():
                found[module] = folder
    return found


PACKAGES = _packages()


def test_all_devices_are_compared() -> None:
    assert {"dovetail_cpu_numpy", "dovetail_cpu_onednn", "dovetail_gpu_opencl"} <= set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_same_file_names(package: str) -> None:
    assert [f"{name}: {role}" for name, role in ROLES.items() if not (PACKAGES[package] / name).exists()] == []
    assert (PACKAGES[package] / "kernels" / "reorder.py").is_file()


@pytest.mark.parametrize("package", PACKAGES)
def test_options_are_a_frozen_dataclass_that_reads_properties(package: str) -> None:
    options = importlib.import_module(f"{package}.options").Options
    assert dataclasses.is_dataclass(options)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.read({}).LIBRARY = ""
    assert inspect.ismethod(options.read)
    with pytest.raises(Exception, match=r"has no option 'SIZE'\n.*[A-Z]+"):
        options.read({"SIZE": 1})


def _outside_kernels(package: str) -> list[Path]:
    folder = PACKAGES[package]
    return [p for p in sorted(folder.rglob("*.py")) if p.relative_to(folder).parts[0] != "kernels"]


LADDER = re.compile(
    r"__module__|isinstance\((\w+\.)*op, (?!OpaqueOperator\b)|\.(op_type|key) (==|!=|in|not in) |type\((\w+\.)*op\) (is|in|==) "
)
"""Asks which operator a node has. `OpaqueOperator` is the core's word for an operator that nothing defines."""


def _code(path: Path) -> list[str]:
    """The lines of a file without comments and docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [n for n in body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))] or [ast.Pass()]
    return ast.unparse(tree).splitlines()


@pytest.mark.parametrize(
    "line", ["if isinstance(node.op, Conv):", "if op.key in NAMES:", "if type(step.op).__module__ == 'a':", "type(op) is Relu"]
)
def test_ladders_are_recognised(line: str) -> None:
    assert LADDER.search(line)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_file_outside_the_kernels_asks_which_operator_a_node_has(package: str) -> None:
    files = _outside_kernels(package)
    assert len(files) > 10
    found = [f"{p.relative_to(ROOT)}: {line.strip()}" for p in files for line in _code(p) if LADDER.search(line)]
    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_file_outside_the_kernels_imports_a_pack(package: str) -> None:
    found = []
    for path in _outside_kernels(package):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None) or ""]
            found += [f"{path.relative_to(ROOT)}: {name}" for name in names if name.startswith("dovetail_ops")]
    assert found == []


def _fresh(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_device_imports_no_pack(package: str) -> None:
    code = f"import sys, {package}.device; print([m for m in sys.modules if m.startswith('dovetail_ops')])"
    assert _fresh(code) == "[]"


WITHOUT_THE_STANDARD_OPERATORS = '''
import sys

class Absent:
    """As if `dovetail-ops-onnx` were not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "dovetail_ops_onnx":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())

import numpy as np
import dovetail
from dovetail.graph import GraphBuilder
from dovetail.op import FLOATS, Eltwise, Operator

class Twice(Operator):
    domain = "test"
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": FLOATS}

    def reference(self, X):
        return X * 2

    def post_ops(self, types, names, chained):
        return (Eltwise("linear", 2.0, 0.0),)

g = GraphBuilder()
g.node(Twice(), g.input("x", "float32", (2, 3)), outputs=["y"])
core = dovetail.Core(config=False)
compiled = core.compile_model(g.model(["y"]), sys.argv[1], {"FALLBACK": False})
x = np.arange(6, dtype=np.float32).reshape(2, 3)
np.testing.assert_array_equal(compiled({"x": x})["y"], x * 2)
print({node.device for node in compiled.report().nodes}, [m for m in sys.modules if m.startswith("dovetail_ops_onnx")])
'''


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
def test_a_model_of_a_packs_operators_runs_without_the_standard_ones(device: str) -> None:
    found, imported = _fresh(WITHOUT_THE_STANDARD_OPERATORS, device).rsplit(" ", 1)
    assert found.startswith(f"{{'{device}")
    assert imported == "[]"
