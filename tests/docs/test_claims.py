"""Pages name only commands, options, kernels and files that exist; tables of READMEs name all of them."""

import ast
import dataclasses
import importlib
import operator
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from dovetail.cli import program

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "plugins"
CALL = re.compile(r"^(?:[A-Z_]+=\S+ )*(dovetail [^\n]+)$|`(dovetail [a-z][^`\n]*)`", re.MULTILINE)
FENCE = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
ELSEWHERE = {"latency", "audit"}
"""Commands that pages write as examples."""


@cache
def pages() -> dict[str, str]:
    """The text of every page but the changelogs."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "*.md"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return {n: (ROOT / n).read_text("utf-8") for n in names if not n.startswith("tests/") and not n.endswith("CHANGELOG.md")}


def calls(text: str) -> Iterator[list[str]]:
    """The calls of the program in console blocks and in backquotes, as words behind its name."""
    fences = "\n".join(content for language, content in FENCE.findall(text) if language == "console")
    for match in CALL.finditer(fences + "\n" + FENCE.sub("", text)):
        if match[1] and match[1] not in fences:  # a line of prose
            continue
        yield shlex.split(re.split(r" [|&>;]|2>", match[1] or match[2])[0])[1:]


def unknown(words: list[str]) -> list[str]:
    """The command or the options among the words that the program lacks."""
    command: click.Command | None = program
    context, names = click.Context(program), ""
    words = words[2:] if words[0] == "--config" else words
    while words and isinstance(command, click.Group) and words[0][0] not in "-.":
        name, *words = words
        names = f"{names} {name}".strip()
        command = command.get_command(context, name)
        if command is None:
            return [] if name in ELSEWHERE or name.isupper() else [names]
    assert command is not None
    known = {"--help", "-h", *(option for param in command.params for option in (*param.opts, *param.secondary_opts))}
    given = [word.partition("=")[0] for word in words if re.match(r"--[a-z]|-[a-zA-Z]$", word)]
    for option in given:  # `run --trace` is a command of a package, with further options
        if option not in known and (added := program.get_command(context, f"{names} {option}")):
            known.update({option}, *(param.opts for param in added.params))
    return [f"{names} {option}" for option in given if option not in known]


def test_unknown_options_are_found() -> None:
    assert unknown(["run", "m.onnx", "-d", "NUMPY", "--trace", "t.json", "--no-roofline"]) == []
    assert unknown(["run", "m.onnx", "--fast"]) == ["run --fast"]
    assert unknown(["plugins", "doctor", "NUMPY", "--timeout", "3"]) == []
    assert unknown(["doctor"]) == ["doctor"]


def test_calls_of_the_program() -> None:
    found = [(page, words) for page, text in pages().items() for words in calls(text)]
    assert len(found) > 200
    assert [(page, name) for page, words in found for name in unknown(words)] == []


def test_imports_of_examples() -> None:
    found = []
    for page, text in pages().items():
        for source in (content for language, content in FENCE.findall(text) if language == "python"):
            with_names = (node for node in ast.walk(parsed(source)) if isinstance(node, ast.ImportFrom))
            found += [(page, str(n.module), alias.name) for n in with_names for alias in n.names if is_ours(str(n.module))]
    assert len(found) > 100
    assert [one for one in found if not exists(*one[1:])] == []


def parsed(source: str) -> ast.Module:
    """The block, where it is a program by itself, else an empty one: fragments are indented or have `...`."""
    try:
        return ast.parse(source)
    except SyntaxError:
        return ast.Module([], [])


def is_ours(module: str) -> bool:
    return module.partition(".")[0].partition("_")[0] == "dovetail"


def exists(module: str, name: str) -> bool:
    if hasattr(importlib.import_module(module), name):
        return True
    try:
        importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        # Names for type checkers alone.
        return name in Path(str(importlib.import_module(module).__file__)).read_text("utf-8")
    return True


def cells(readme: Path, heading: str) -> set[str]:
    """The names in backquotes in the first column of the table below a heading."""
    section = readme.read_text("utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return {name for line in section.splitlines() if line[:3] == "| `" for name in re.findall("`([^`]+)`", line.split("|")[1])}


@pytest.mark.parametrize("package", ["cpu_numpy", "cpu_onednn", "gpu_opencl"])
def test_readmes_of_devices_have_all_options(package: str) -> None:
    options = importlib.import_module(f"dovetail_{package}.options").Options
    assert cells(PLUGINS / package / "README.md", "Options") == {field.name for field in dataclasses.fields(options)}


def test_kernels_of_numpy_are_described() -> None:
    sources = (path.read_text("utf-8") for path in (PLUGINS / "cpu_numpy" / "src").rglob("*.py"))
    names = {name for text in sources for name in re.findall(r'^    name = "([^"]+)"$', text, re.MULTILINE)}
    assert len(names) > 20
    assert cells(PLUGINS / "cpu_numpy" / "README.md", "What it does") - {"ref"} == names


def test_included_kernel_files_are_described() -> None:
    sources = (path.read_text("utf-8") for path in (PLUGINS / "gpu_opencl" / "src" / "dovetail_gpu_opencl" / "cl").glob("*.cl"))
    included = {name for text in sources for name in re.findall(r'^#include "(\w+\.cl)"', text, re.MULTILINE)}
    readme = (PLUGINS / "gpu_opencl" / "README.md").read_text("utf-8")
    (row,) = [line for line in readme.splitlines() if line.startswith("| `cl/post.cl`")]
    assert set(re.findall(r"(\w+\.cl)`", row)) == included


def test_formats_are_named_where_security_promises_for_them() -> None:
    projects = [tomllib.loads(path.read_text("utf-8"))["project"] for path in PLUGINS.glob("*/pyproject.toml")]
    suffixes = {name for project in projects for name in project.get("entry-points", {}).get("dovetail.frontends", {})}
    text = pages()["docs/explanation/security.md"]
    (formats,) = re.findall(r"The formats here \(([^)]+)\)", text)
    assert set(re.findall(r"`\.(\w+)`", formats)) == suffixes


def test_the_core_names_all_packages() -> None:
    project = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = {re.match(r"[\w-]+", line)[0] for line in project["optional-dependencies"]["all"]}  # type: ignore[index]  # all have names
    assert set(re.findall(r"^\| `(dovetail-[\w-]+)` \|", pages()["core/README.md"], re.MULTILINE)) == wanted


@pytest.mark.parametrize(
    ("page", "sentence", "constant", "unit"),
    [
        ("docs/explanation/architecture.md", "a chain of at most {} post-ops", "dovetail.graph.post_ops:MAX_POST_OPS", 1),
        (
            "docs/explanation/architecture.md",
            "constants have a budget of {} MB",
            "dovetail.passes.constant_folding:FOLD_BUDGET",
            1 << 20,
        ),
        ("docs/explanation/security.md", "has a budget ({} MB,", "dovetail.passes.constant_folding:FOLD_BUDGET", 1 << 20),
        (
            "docs/explanation/security.md",
            "no entities, {} MiB at most",
            "dovetail_gpu_opencl.custom_layers.sources:XML_LIMIT",
            1 << 20,
        ),
        (
            "docs/how-to/debug_kernels.md",
            "every buffer has {} guard bytes",
            "dovetail_gpu_opencl.memory:GuardedBuffers.MARGIN",
            1,
        ),
        ("docs/how-to/tune.md", "among its {} candidates", "dovetail_gpu_opencl.tuner:CANDIDATES", 1),
        ("docs/reference/configuration.md", "a file of more than {} KiB", "dovetail.config:_SIZE_LIMIT", 1 << 10),
        (
            "docs/reference/post_ops.md",
            "an ordered chain of at most {} small operations",
            "dovetail.graph.post_ops:MAX_POST_OPS",
            1,
        ),
        ("docs/reference/properties.md", "by default {} MiB", "dovetail.cache:LIMIT", 1 << 20),
        ("docs/reference/properties.md", "The numbers of rows, at most {},", "dovetail_virtual_devices.options:MOST_SIZES", 1),
        (
            "docs/reference/properties.md",
            "batches of up to n rows, by default {},",
            "dovetail_virtual_devices.batch:DEFAULT_SIZE",
            1,
        ),
        ("plugins/frontend_onnx/README.md", "{} KiB or more, external", "dovetail.frontend:SMALLEST_REGION", 1 << 10),
        ("plugins/frontend_onnx/README.md", "may be nested {} deep", "dovetail_frontend_onnx.link:MAX_DEPTH", 1),
        ("plugins/frontend_openvino/README.md", "with their bodies, {} deep", "dovetail_frontend_openvino.link:MAX_DEPTH", 1),
        ("plugins/frontend_openvino/README.md", "more than {} levels", "dovetail_frontend_openvino.markup:MAX_DEPTH", 1),
        ("plugins/frontend_openvino/README.md", "more than {} elements", "dovetail_frontend_openvino.markup:_ELEMENTS", 1),
        ("plugins/frontend_pzkm/README.md", "may have {} tables", "dovetail_frontend_pzkm.wire:MAX_TABLES", 1),
        ("plugins/gpu_opencl/README.md", "at most {} MiB", "dovetail.cache:LIMIT", 1 << 20),
    ],
)
def test_limits(page: str, sentence: str, constant: str, unit: int) -> None:
    module, _, name = constant.partition(":")
    value = operator.attrgetter(name)(importlib.import_module(module))
    assert sentence.format(f"{value // unit:,}") in pages()[page] or sentence.format(value // unit) in pages()[page]


def test_machine_code_is_counted() -> None:
    from dovetail_cpu_onednn import joined_launches, making
    from dovetail_ops_onnx import _f16c, _gathered_rows, _packed_rows

    converting, running, making_them = len(_f16c._WIDEN + _f16c._NARROW), len(joined_launches._RUN), len(making._MAKE)
    text = " ".join(pages()["docs/explanation/security.md"].split())
    assert f"float16 by {converting} bytes" in text
    assert f"matrices of 4 and 8 bits by {sum(map(len, _packed_rows.FUNCTIONS)):,} and" in text
    assert f"adds up rows of an image by {len(_gathered_rows.FUNCTION)}," in text
    assert f"runs primitives by {running} and makes them by {making_them}," in text


def test_layers_of_pzkm_are_counted() -> None:
    from dovetail_frontend_pzkm.catalogue import CATALOGUE, REFUSED

    counted = f"of {len(CATALOGUE) - len(REFUSED)} of the catalogue's {len(CATALOGUE)} types"
    assert counted in pages()["plugins/frontend_pzkm/README.md"]
