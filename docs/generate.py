"""Writes the generated pages of docs/reference from the code that they describe.

`python docs/generate.py` writes them; tests/docs compares them, so that a page that is out of date fails the tests.
"""

import importlib
import inspect
import json
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import click
from api_pages import AUTHORING, authoring, entry, python_api
from compatibility import rendered
from page_parts import NOTE, ROOT, documented, linked, signature, table

import dovetail.cli
import dovetail_onnxruntime
import dovetail_ops_onnx as ops
from dovetail import errors, hookspecs
from dovetail.cli._command import Group
from dovetail.graph import DType
from dovetail.op import Operator
from dovetail.passes import GraphPass
from dovetail.passes.pipeline import attributed_to, pipeline
from dovetail.plugins import checks
from dovetail_onnxruntime.absent import ABSENT, ABSENT_MODULES
from dovetail_ops_onnx import _types

FOLDER = ROOT / "docs" / "reference"


def main() -> int:
    """Write every page; print the names of those that changed."""
    for name, render in PAGES.items():
        path, text = FOLDER / name, render()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return 0


# --- hooks -----------------------------------------------------------------------------------------------------------


def hooks() -> str:
    """hooks.md: every hook with its signature and contract."""
    groups: dict[str, list[str]] = {}
    for hook, kinds in checks.HOOKS.items():
        for kind in kinds:
            needed = [group for group in checks._REQUIRED.get(kind, ()) if hook in group]
            mark = "**" if needed and len(needed[0]) == 1 else "*" if needed else ""
            groups.setdefault(kind, []).append(f"{mark}{hook}{mark}")
    rows = [(f"`dovetail.{kind}`", ", ".join(members)) for kind, members in groups.items()]
    parts = [
        f"# Hooks\n\n{NOTE}",
        documented(hookspecs),
        "Where a hook can be implemented; those in bold must be, and of those in italics one:\n",
        table(("Entry-point group", "Hooks"), rows),
    ]
    for name in checks.HOOKS:
        function = getattr(hookspecs, name)
        parts += [f"## {name}\n", f"```python\n{signature(function)}\n```\n", documented(function)]
    return "\n".join(parts)


# --- errors ----------------------------------------------------------------------------------------------------------


def error_tree() -> str:
    """errors.md: the tree with its codes."""
    rows = [
        (
            f"[`{kind.code}`](../how-to/troubleshoot.md#{kind.code.lower()}-{kind.__name__.lower()})",
            "&emsp;" * depth + f"`{kind.__name__}`",
            " ".join((kind.__doc__ or "").split("\n\n")[0].split()),
        )
        for kind, depth in descendants(errors.DovetailError, 0)
    ]
    functions = [name for name in errors.__all__ if not isinstance(getattr(errors, name), type)]
    parts = [f"# Errors\n\n{NOTE}", ERRORS_HEAD, table(("Code", "Class", "Raised for"), rows), ERRORS_TAIL]
    for name in functions:
        parts += [f"## errors.{name}\n", *entry(name, getattr(errors, name))]
    return "\n".join(parts)


ERRORS_HEAD = """\
Everything that dovetail raises on purpose is a `DovetailError`, from `dovetail.errors`. An error has a `message` that says
what was received and what is accepted, a `hint` that says what to do (it may be empty), and a `code` that stays the same
from version to version. Errors can be pickled. An indented class is a subclass of the one above it.
"""
ERRORS_TAIL = """\
The command line prints message and hint on stderr and exits with 1; with `--debug` it shows the traceback. Wrong usage
of a command (an unknown option, a missing argument) exits with 2.
"""


def descendants(kind: type[errors.DovetailError], depth: int) -> Iterator[tuple[type[errors.DovetailError], int]]:
    """The class and its subclasses in `dovetail.errors`, depth first, by code."""
    yield kind, depth
    for below in sorted(kind.__subclasses__(), key=lambda k: k.code):
        if below.__module__ == errors.__name__:
            yield from descendants(below, depth + 1)


# --- operators -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DevicePackage:
    """A device plugin of this repository: its device type and the folder of its kernels."""

    device: str
    kernels: Path


def device_packages() -> list[DevicePackage]:
    """The device plugins of this repository, by device type; examples are none."""
    found = []
    for project in ROOT.glob("plugins/*/pyproject.toml"):
        groups = tomllib.loads(project.read_text(encoding="utf-8"))["project"].get("entry-points", {})
        for name, module in groups.get("dovetail.devices", {}).items():
            found.append(DevicePackage(name.upper(), project.parent / "src" / module / "kernels"))
    return sorted(found, key=lambda package: package.device)


def operators() -> str:
    """operators.md: every standard operator."""
    packages = device_packages()
    by_name: dict[str, list[type[Operator]]] = {}
    for cls in ops.find_all():
        by_name.setdefault(cls.op_type, []).append(cls)
    rows = [row(versions, packages) for _, versions in sorted(by_name.items())]
    legend = [(name, ", ".join(dtype.value for dtype in DType if dtype in types)) for name, types in TYPE_SETS.items()]
    columns = ("Operator", "From version", "Types", "Can be", *(p.device for p in packages))
    head = OPERATORS_HEAD.format(count=len(by_name), devices=", ".join(p.device for p in packages))
    words = table(("Word", "Data types"), legend)
    return f"# Operators\n\n{NOTE}\n{head}\n{table(columns, rows)}\n## Types\n\n{words}"


OPERATORS_HEAD = """\
The {count} operators of the standard domain `ai.onnx`. `dovetail ops` prints those of installed op packs too, and
`dovetail where Conv` the files of one.

- **Operator** links to the definition: attributes, shape inference, NumPy reference.
- **From version**: the operator set versions from which a definition holds, up to the next one. An operator of an
  older set is refused with a message that says so; ONNX models of sets 1 to 6 are brought to a newer one when they are read.
- **Types** are those of the newest definition, for each type variable, in the words of the last table.
- **Can be**: a *post-op* (of floating-point type) is taken over by the node before it, or runs in the device's elementwise
  kernel; a *view* moves nothing; a *composition* is expanded into other operators where the device has no kernel for it;
  *control flow* runs sub-graphs, and chooses them on the host.
- **{devices}** link to the device's own kernels for the operator. Where there are none, a node that is not a post-op,
  view or composition runs by its NumPy reference on NUMPY. A kernel may refuse a data type or an attribute:
  `dovetail info MODEL` says which nodes of a model a device refuses, and why.
"""


def row(versions: list[type[Operator]], packages: list[DevicePackage]) -> list[str]:
    """The table row of one operator."""
    newest = versions[-1]
    definition = ROOT / "plugins" / "ops_onnx" / "src" / "dovetail_ops_onnx" / f"{newest.stem}.py"
    tables = {file: f'"{newest.stem}":' in file.read_text("utf-8") for file in (p.kernels / "_table.py" for p in packages)}
    kernels = [table if is_there else table.with_name(f"{newest.stem}.py") for table, is_there in tables.items()]
    return [
        linked(newest.op_type, definition),
        ", ".join(str(cls.since) for cls in versions),
        types_of(newest),
        ", ".join(abilities(newest)),
        *(linked("kernels", file) if file.is_file() else "" for file in kernels),
    ]


def abilities(cls: type[Operator]) -> Iterator[str]:
    """The rewrites that planning may make of the operator."""
    if cls.post_ops is not Operator.post_ops:
        yield "post-op"
    if cls.is_view:
        yield "view"
    if cls.has_composition():
        yield "composition"
    if cls.has_control():
        yield "control flow"


_FLOAT8 = {DType.FLOAT8_E4M3FN, DType.FLOAT8_E4M3FNUZ, DType.FLOAT8_E5M2, DType.FLOAT8_E5M2FNUZ}

TYPE_SETS: dict[str, frozenset[DType]] = {
    "all": _types.ALL,
    "basic": _types.BASIC,
    "common": _types.COMMON,
    "numeric": _types.NUMERIC,
    "signed": _types.SIGNED,
    "floats": _types.FLOATS,
    "integers": _types.INTEGERS,
    "wide integers": frozenset({DType.INT32, DType.INT64, DType.UINT32, DType.UINT64}),
    "indices": _types.INDICES,
    "float8": frozenset(_FLOAT8),
    "narrow": _types.ALL - _types.BASIC - _FLOAT8,
    "float6": _types.FLOAT6,
}
"""Words for sets of data types, a larger set before the smaller ones inside it."""


def types_of(cls: type[Operator]) -> str:
    """`T: floats; I: indices`, or the words of the only set when all variables have the same."""
    words = {name: type_words(types) for name, types in cls.types.items()}
    if len(set(words.values())) == 1:
        return next(iter(words.values()))
    return "; ".join(f"{name}: {text}" for name, text in words.items())


def type_words(types: frozenset[DType]) -> str:
    """The set as words, and the data types that no word covers."""
    words, left = [], set(types)
    for word, members in TYPE_SETS.items():
        if len(members) > 1 and members <= left:
            words.append(word)
            left -= members
    return ", ".join([*words, *sorted(dtype.value for dtype in left)])


# --- passes ----------------------------------------------------------------------------------------------------------


def passes() -> str:
    """passes.md: every graph pass of the core and of the packages of this repository, in the order in which they run."""
    homes = {one.name: ("dovetail", ROOT / "core" / "README.md") for one in pipeline()}
    added: list[GraphPass] = []
    for project in sorted(ROOT.glob("*/*/pyproject.toml")):
        metadata = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        for module in metadata.get("entry-points", {}).get("dovetail.hooks", {}).values():
            give = getattr(importlib.import_module(module), "dovetail_graph_passes", lambda options: ())
            given = attributed_to(metadata["name"], give({}))
            homes.update({one.name: (one.origin, project.with_name("README.md")) for one in given})
            added += given
    rows = [
        (
            f"`{one.name}`",
            one.stage,
            linked(*homes[one.name]),
            "each set of input shapes" if one.needs_shapes else "the model",
            "no" if one.essential else "yes",
            (inspect.getdoc(inspect.unwrap(one.run)) or "").partition("\n")[0],
        )
        for one in pipeline(added)
    ]
    columns = ("Pass", "Stage", "Package", "Runs once for", "Can be left out", "What it does")
    return f"# Graph passes\n\n{NOTE}\n{PASSES_HEAD}\n{table(columns, rows)}"


PASSES_HEAD = """\
The passes between reading a model and compiling its parts, in the order in which they run. Those of the stages `fuse` and
`layout` run on each device's part of the model. `dovetail explain --passes MODEL` shows what each did to a model, the property
`PASSES` leaves some out, and [Write graph passes](../how-to/write_graph_passes.md) shows how a package adds its own.
"""


# --- command line ----------------------------------------------------------------------------------------------------


def command_line() -> str:
    """cli.md: every command of the program itself and of the packages of this repository, from its help."""
    root = click.Context(dovetail.cli.program, info_name="dovetail", **dovetail.cli.program.context_settings)
    names = [m.name for m in iter_modules(dovetail.cli.__path__) if not m.name.startswith("_")]
    parts = [
        f"# Command line\n\n{NOTE}",
        described_help(dovetail.cli.program),
        COMMANDS_HEAD,
    ]
    for name in names:
        command = importlib.import_module(f"dovetail.cli.{name}").command
        parts += command_parts(command, click.Context(command, info_name=name, parent=root), 2)
    for project in sorted(ROOT.glob("contrib/*/pyproject.toml")):
        parts += added_command_parts(project, root)
    return "\n".join(parts)


def added_command_parts(project: Path, root: click.Context) -> Iterator[str]:
    """The commands that a package of this repository adds, each with a link to the package."""
    metadata = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    group = click.Group()
    for module in metadata.get("entry-points", {}).get("dovetail.commands", {}).values():
        importlib.import_module(module).dovetail_add_commands(group)
    for name, command in group.commands.items():
        heading, *others = command_parts(command, click.Context(command, info_name=name, parent=root), 2)
        yield from (heading, f"Added by {linked(metadata['name'], project.with_name('README.md'))}.\n", *others)


COMMANDS_HEAD = """\
Results go to stdout, remarks and progress to stderr. Exit codes: 0 done, 1 failed, 2 wrong
usage. Every command has `--help`, `--json` to print JSON instead of tables, and `--debug` to show the traceback of an error.
Packages add commands; `dovetail --help` lists those that are installed. The core has
`devices`, `run`, and of the group `plugins` the commands `info` and `list`;
`pip install dovetail[all]` installs the others below.
"""


COMMON = ("as_json", "debug")
"""Options of every command, which the page names once."""


def command_parts(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    """Heading, description, usage, options and example; for a group, those of its commands too."""
    yield f"{'#' * level} {context.command_path}\n"
    yield described_help(command)
    if isinstance(command, click.Group):
        for name in command.built_in() if isinstance(command, Group) else command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, f"{name} is listed and not there"
            yield from command_parts(below, click.Context(below, info_name=name, parent=context), level + 1)
        return
    usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
    example = textwrap.dedent((command.epilog or "").partition("Example:\n")[2]).strip()
    assert example, f"{context.command_path} has no example in its help"
    yield f"Usage: `{usage}`. Example:\n\n```console\n{example}\n```\n"
    options = [p for p in command.params if isinstance(p, click.Option) and p.name not in COMMON]
    records = [record for option in options if (record := option.get_help_record(context)) is not None]
    if records:
        yield table(
            ("Option", "What it does"), [(f"`{' '.join(names.split())}`", " ".join(text.split())) for names, text in records]
        )


def described_help(command: click.Command) -> str:
    """The description; click's marker `\\b` keeps the lines of a paragraph, which becomes a fenced block."""
    paragraphs = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b\n"):
            paragraphs.append(f"```text\n{paragraph[2:]}\n```")
        else:
            paragraphs.append(paragraph)
    return "\n\n".join(paragraphs) + "\n"


# --- packages --------------------------------------------------------------------------------------------------------


def packages() -> str:
    """packages.md: every package of the repository, from its metadata, tests and stored results."""
    found = [path for folder in ("core", "plugins/*", "contrib/*") for path in sorted(ROOT.glob(f"{folder}/pyproject.toml"))]
    columns = ("Package", "Description", "Provides", "Needs", "Extras", "Results")
    return f"# Packages\n\n{NOTE}\n{PACKAGES_HEAD}\n" + table(columns, [package_row(path.parent) for path in found])


PACKAGES_HEAD = """\
The packages of this repository. `dovetail plugins list` prints the plugins that are installed, of other authors too; a plugin is
found by its entry points, without being registered anywhere. **Results** are those of the
[conformance kit](../how-to/test_your_plugin.md) in [Conformance](conformance.md), or name the classes of the kit that the
package's own tests use.
"""


def package_row(folder: Path) -> tuple[str, ...]:
    """One package: what it provides and needs."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = [
        (group, name)
        for group, names in project.get("entry-points", {}).items()
        for name in names
        if group.startswith("dovetail.")
    ]
    extras = project.get("optional-dependencies", {})
    programs = [f"the program `{name}`" for name in project.get("scripts", {})]
    modules = [f"the module `{path.parent.name}`" for path in folder.glob("src/*/__init__.py")]
    return (
        linked(project["name"], folder / "README.md"),
        f"{project['description']}. {linked('Changes', folder / 'CHANGELOG.md')}",
        ", ".join(f"`{name}` ({group})" for group, name in points) or ", ".join(programs or modules),
        ", ".join(f"`{text}`" for text in project["dependencies"]),
        ", ".join(f"`[{name}]`" for name in extras if name != "test"),
        results_of(folder, [name.upper() for group, name in points if group == "dovetail.devices"]),
    )


def results_of(folder: Path, devices: Iterable[str]) -> str:
    """The stored results of a device, or the class of the conformance kit that the package's tests use."""
    stored = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((FOLDER / "conformance").glob("*.json"))]
    counts = [conformance_counts(one) for one in stored if one["device"] in devices]
    tests = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("tests/**/*.py"))
    kits = sorted({name for name in ("DeviceConformance", "FrontendConformance", "OpPackConformance") if f"({name})" in tests})
    return "; ".join(counts) or (f"its tests run `{'`, `'.join(kits)}`" if kits else "tests of its own")


def conformance_counts(stored: dict[str, Any]) -> str:
    """`2,000 right, 10 refused with a reason on <hardware>`."""
    outcomes: Counter[str] = Counter()
    for operators in stored["results"].values():
        for dtypes in operators.values():
            for counted in dtypes.values():
                outcomes.update(counted)
    right = outcomes["passed"] + outcomes["folded"]
    failed = f", {outcomes['failed']:,} failed" if outcomes["failed"] else ""
    return f"{right:,} checks right, {outcomes['refused']:,} refused with a reason{failed} on {stored['hardware']}"


# --- onnxruntime -----------------------------------------------------------------------------------------------------


def onnxruntime_symbols() -> str:
    """onnxruntime.md: the symbols that dovetail-onnxruntime-api has, and those that it lacks."""
    homes = dovetail_onnxruntime._HOMES
    present = [(f"`{name}`", inspect.cleandoc(getattr(dovetail_onnxruntime, name).__doc__).partition("\n")[0])
               for names in homes.values() for name in names]  # fmt: skip
    absent = [(f"`{name}`", reason) for name, reason in (*ABSENT.items(), *ABSENT_MODULES.items())]
    return (
        f"# onnxruntime's interface\n\n{NOTE}\n{ONNXRUNTIME_HEAD}\n## What is there\n\n"
        + table(("Symbol", "Meaning"), sorted(present))
        + "\n`onnxruntime.capi` has `onnxruntime_pybind11_state`, `_pybind_state` and `onnxruntime_inference_collection`.\n"
        + "\n## What is not there\n\n"
        + table(("Symbol", "Why, and what to use"), sorted(absent))
    )


ONNXRUNTIME_HEAD = """\
Symbols of onnxruntime in [dovetail-onnxruntime-api](../../contrib/onnxruntime_api/README.md), which runs
[programs that call onnxruntime](../how-to/run_an_onnxruntime_program.md).
"""


PAGES: dict[str, Callable[[], str]] = {
    "authoring.md": authoring,
    "cli.md": command_line,
    "compatibility.md": rendered,
    "errors.md": error_tree,
    "hooks.md": hooks,
    "onnxruntime.md": onnxruntime_symbols,
    "operators.md": operators,
    "packages.md": packages,
    "passes.md": passes,
    "python.md": python_api,
}
PUBLIC = (*AUTHORING, "dovetail", "dovetail.errors", "dovetail.graph", "dovetail.runtime")
"""The modules of the core whose names are described in these pages."""

if __name__ == "__main__":
    sys.exit(main())
