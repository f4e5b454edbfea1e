"""Writes the generated pages of docs/reference from the code that they describe.

`python docs/generate.py` writes them; tests/docs compares them, so that a page that is out of date fails the tests.
"""

import ast
import importlib
import inspect
import re
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from pkgutil import iter_modules

import click

import dovetail.cli
import dovetail_ops_onnx as ops
from dovetail import errors, hookspecs, runtime
from dovetail.graph import DType
from dovetail.op import Operator
from dovetail.passes import GraphPass
from dovetail.passes.pipeline import attributed_to, pipeline
from dovetail.plugins import checks
from dovetail_ops_onnx import _types

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"
NOTE = "<!-- Written by docs/generate.py from the code. Do not edit: run `python docs/generate.py`. -->\n"


def main() -> int:
    """Write every page; print the names of those that changed."""
    for name, render in PAGES.items():
        path, text = FOLDER / name, render()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return 0


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table. Cells may hold Markdown; `|` is escaped."""
    head = [*columns]
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def linked(text: str, path: Path) -> str:
    """A link from a page of docs/reference to a file of the repository."""
    return f"[{text}](../../{path.relative_to(ROOT).as_posix()})"


def documented(thing: object) -> str:
    """The docstring as Markdown: `::` and an indented block become a fenced block of Python, spaced as ruff wants it."""
    text = inspect.cleandoc(inspect.getdoc(thing) or "") + "\n"
    blocks = re.compile(r"::\n\n((?:(?: {4}.*)?\n)+)")
    return blocks.sub(lambda match: f":\n\n```python\n{spaced(match[1])}\n```\n\n", text).rstrip() + "\n"


def spaced(code: str) -> str:
    """Without indentation, and with two empty lines before and after what stands on its own."""
    text = re.sub(r"\n\n(?=@|class |def )", "\n\n\n", textwrap.dedent(code).strip())
    return re.sub(r"(\n {4}[^\n]*\n)\n(?=\w)", r"\1\n\n", text)


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
        documented(hookspecs).replace("there is no code here", "it has no code"),
        "Where a hook can be implemented; those in bold must be, and of those in italics one:\n",
        table(("Entry-point group", "Hooks"), rows),
    ]
    for name in checks.HOOKS:
        function = getattr(hookspecs, name)
        parts += [f"## {name}\n", f"```python\n{signature(function)}\n```\n", documented(function)]
    return "\n".join(parts)


def signature(function: Callable[..., object]) -> str:
    """`def name(argument: Type) -> Type`, annotations as they stand in the source."""
    source = inspect.getsource(function)
    found = re.search(r"^def .*?:\n", source, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{function} has no def line"
    return re.sub(r'(: |-> )"([^"]+)"', r"\1\2", found[0].rstrip(":\n"))


# --- errors ----------------------------------------------------------------------------------------------------------


def error_tree() -> str:
    """errors.md: the tree with its codes."""
    rows = [
        (f"`{kind.code}`", "&emsp;" * depth + f"`{kind.__name__}`", " ".join((kind.__doc__ or "").split("\n\n")[0].split()))
        for kind, depth in descendants(errors.DovetailError, 0)
    ]
    return f"# Errors\n\n{NOTE}\n{ERRORS_HEAD}\n{table(('Code', 'Class', 'Raised for'), rows)}\n{ERRORS_TAIL}"


ERRORS_HEAD = """\
Everything that dovetail raises on purpose is a `DovetailError`, from `dovetail.errors`. An error has a `message` that says
what was received and what is accepted, a `hint` that says what to do (it may be empty), and a `code` that stays the same
from version to version. Errors can be pickled. An indented class is a subclass of the one above it.
"""
ERRORS_TAIL = """\
The command line prints message and hint on stderr and exits with 1; with `--debug` it shows the traceback. A command that
cannot be meant (an unknown option, a missing argument) exits with 2.
"""


def descendants(kind: type[errors.DovetailError], depth: int) -> Iterator[tuple[type[errors.DovetailError], int]]:
    """The class and its subclasses in `dovetail.errors`, depth first, by code."""
    yield kind, depth
    for below in sorted(kind.__subclasses__(), key=lambda k: k.code):
        if below.__module__ == errors.__name__:
            yield from descendants(below, depth + 1)


# --- what authors import ---------------------------------------------------------------------------------------------

AUTHORING = (
    "dovetail.op",
    "dovetail.device",
    "dovetail.virtual",
    "dovetail.devices.hosting",
    "dovetail.frontend",
    "dovetail.command",
    "dovetail.cache",
    "dovetail.testing",
)
"""The modules for authors of packages, each name described in the first of them that has it."""


def authoring() -> str:
    """authoring.md: every public name of the modules for authors."""
    parts = [f"# What authors import\n\n{NOTE}", AUTHORING_HEAD]
    homes: dict[str, str] = {}
    for name in AUTHORING:
        module = importlib.import_module(name)
        new = [member for member in module.__all__ if member not in homes]
        known = [f"[{member}](#{anchor(homes[member], member)})" for member in module.__all__ if member in homes]
        homes.update(dict.fromkeys(new, name))
        parts += [f"## {name}\n", documented(module)]
        parts += [f"Described above: {', '.join(known)}.\n"] if known else []
        for member in new:
            parts += [f"### {name.removeprefix('dovetail.')}.{member}\n", *entry(member, getattr(module, member))]
    return "\n".join(parts)


AUTHORING_HEAD = """\
The modules that packages import, and all of their names. Besides these, plugins import `dovetail.hookspecs` ([Hooks](hooks.md)),
`dovetail.errors` ([Errors](errors.md)), the graph in `dovetail.graph`, and the classes of standard operators from
`dovetail_ops_onnx` ([Operators](operators.md)). Everything else may change without notice.
"""


def anchor(module: str, member: str) -> str:
    """The anchor of a name's heading."""
    return f"{module.removeprefix('dovetail.')}{member}".lower().replace(".", "")


def entry(name: str, value: object) -> Iterator[str]:
    """The paragraphs that describe a name: how it is declared, its docstring, its public methods."""
    if not isinstance(value, type) and getattr(value, "__name__", "") != name:  # click's options are functions of another name
        yield f"{constant(name)}\n"
        return
    source = textwrap.dedent(inspect.getsource(value))
    declared = ast.parse(source).body[0]
    if isinstance(declared, ast.FunctionDef):
        yield fenced(signature(value) if inspect.isfunction(value) else name)
        yield documented(value)
        return
    assert isinstance(declared, ast.ClassDef)
    yield fenced("\n".join(class_lines(declared, source.splitlines())))
    yield documented(value)
    fields = [(target, text) for target, text in followed_by_text(declared.body)]
    if fields:
        yield "".join(f"- `{target}`: {' '.join(text.split())}\n" for target, text in fields)
    for method in public_methods(declared):
        text = " ".join((ast.get_docstring(method) or "").split())
        yield f"- **`{heading(method)}`** {text}".rstrip() + "\n"


def fenced(code: str) -> str:
    """A block of Python."""
    return f"```python\n{code}\n```\n"


def class_lines(declared: ast.ClassDef, source: list[str]) -> Iterator[str]:
    """The class line, and its public fields as they are declared."""
    bases = [text for base in declared.bases if not (text := ast.unparse(base)).startswith(("ABC", "Generic", "_"))]
    fields = [s for s in declared.body if isinstance(s, ast.AnnAssign | ast.Assign)]
    shown = [s for s in fields if not source[s.lineno - 1].strip().startswith("_")]
    yield f"class {declared.name}({', '.join(bases)}):".replace("()", "") + ("" if shown else " ...")
    for field in shown:
        yield from source[field.lineno - 1 : field.end_lineno]


def public_methods(declared: ast.ClassDef) -> list[ast.FunctionDef]:
    """The methods and properties that have a name for users."""
    return [s for s in declared.body if isinstance(s, ast.FunctionDef) and not s.name.startswith("_")]


def heading(method: ast.FunctionDef) -> str:
    """`name(arguments) -> type`, or the name of a property with its type."""
    kinds = {ast.unparse(d).rpartition(".")[2] for d in method.decorator_list}
    returns = f": {ast.unparse(method.returns).strip(chr(39))}" if method.returns else ""
    if kinds & {"property", "cached_property"}:
        return f"{method.name}{returns}"
    arguments = ast.unparse(method.args).removeprefix("self").removeprefix("cls").removeprefix(", ")
    return re.sub(r"(: |-> )'([^']+)'", r"\1\2", f"{method.name}({arguments}){returns.replace(':', ' ->', 1)}")


def followed_by_text(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Name and description of what is assigned and followed by a string."""
    for statement, following in pairwise(body):
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            yield from ((t.id, str(following.value.value)) for t in targets if isinstance(t, ast.Name))


def constant(name: str) -> str:
    """The string that follows a constant where the core assigns it, or the value of one that needs no words."""
    assert name in constants(), f"{name} is public and has no description below its assignment"
    return " ".join(constants()[name].split())


@cache
def constants() -> dict[str, str]:
    """Name -> description, of everything that the core's modules assign and describe."""
    trees = (ast.parse(p.read_text(encoding="utf-8")) for p in sorted((ROOT / "core" / "src" / "dovetail").rglob("*.py")))
    return {name: text for tree in trees for name, text in followed_by_text(tree.body)}


# --- what programs call ------------------------------------------------------------------------------------------------


def python_api() -> str:
    """python.md: every public name of `dovetail`, and what the objects that it makes are."""
    described = [*PROGRAMS, *(f"dovetail.runtime.{name}" for name in runtime.__all__ if name not in dovetail.__all__)]
    described = [name for name in described if isinstance(named(name), type) or inspect.isfunction(named(name))]
    elsewhere = [name for name in dovetail.__all__ if f"dovetail.{name}" not in described and not name.startswith("__")]
    rows = [(f"`dovetail.{name}`", OF_AUTHORS[name]) for name in elsewhere]
    parts = [f"# Python\n\n{NOTE}", PYTHON_HEAD, table(("Name", "Described in"), rows)]
    for name in described:
        value = named(name)
        parts += [f"## {name}\n", *entry(name.rpartition(".")[2], value), *specials(name, value)]
    return "\n".join(parts)


PROGRAMS = (
    "dovetail.Core",
    "dovetail.Model",
    "dovetail.CompiledModel",
    "dovetail.InferRequest",
    "dovetail.AsyncInferQueue",
    "dovetail.PostOps",
    "dovetail.plugins.register",
    "dovetail.plugins.temporary",
)
"""What a program starts from, in the order in which it meets them; what these give comes after."""

OF_AUTHORS = {
    "DType": "[`op.DType`](authoring.md#opdtype)",
    "DovetailError": "[Errors](errors.md)",
    "Graph": "[`op.Graph`](authoring.md#opgraph)",
    "GraphBuilder": "[`op.GraphBuilder`](authoring.md#opgraphbuilder)",
    "Operator": "[`op.Operator`](authoring.md#opoperator)",
    "TensorType": "[`op.TensorType`](authoring.md#optensortype)",
    "hookimpl": "[Hooks](hooks.md)",
}
"""Public names of `dovetail` that authors use more than programs do."""

PYTHON_HEAD = """\
What a program that runs models calls. [Your first model](../tutorial/first_model.md) shows it at work; the properties of
`compile_model` are on [a page of their own](properties.md). All of it may be called from any thread; an `InferRequest` is used by
one thread at a time.

Other public names:
"""


def named(name: str) -> object:
    """What a dotted name of the package stands for."""
    module, _, member = name.rpartition(".")
    return getattr(importlib.import_module(module), member)


def specials(name: str, value: object) -> Iterator[str]:
    """How a program makes objects of a class, and calls them, where it does."""
    for special, shown in ((f"{name}.__init__", name.rpartition(".")[2]), (f"{name}.__call__", "compiled")):
        if special in SPECIALS:
            method = ast.parse(textwrap.dedent(inspect.getsource(getattr(value, special.rpartition(".")[2])))).body[0]
            assert isinstance(method, ast.FunctionDef)
            shown = heading(method).replace(method.name, shown, 1).removesuffix(" -> None")
            yield f"- **`{shown}`** {' '.join((ast.get_docstring(method) or '').split())}".rstrip() + "\n"


SPECIALS = (
    "dovetail.Core.__init__",
    "dovetail.AsyncInferQueue.__init__",
    "dovetail.PostOps.__init__",
    "dovetail.CompiledModel.__call__",
)


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
    kernels = [package.kernels / f"{newest.stem}.py" for package in packages]
    return [
        linked(newest.op_type, definition),
        ", ".join(str(cls.since) for cls in versions),
        types_of(newest),
        ", ".join(abilities(newest)),
        *(linked("kernels", file) if file.is_file() else "" for file in kernels),
    ]


def abilities(cls: type[Operator]) -> Iterator[str]:
    """What planning may do with the operator."""
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
            (inspect.getdoc(one.run) or "").partition("\n")[0],
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
    for module in metadata.get("entry-points", {}).get("dovetail.hooks", {}).values():
        importlib.import_module(module).dovetail_add_commands(group)
    for name, command in group.commands.items():
        heading, *others = command_parts(command, click.Context(command, info_name=name, parent=root), 2)
        yield from (heading, f"Added by {linked(metadata['name'], project.with_name('README.md'))}.\n", *others)


COMMANDS_HEAD = """\
Results go to stdout, remarks and progress to stderr. Exit codes: 0 done, 1 failed, 2 called in a way that cannot be
meant. Every command has `--help`. Plugins may add commands; `dovetail --help` lists them.
"""


def command_parts(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    """Heading, description, usage, options and example; for a group, those of its commands too."""
    yield f"{'#' * level} {context.command_path}\n"
    yield described_help(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, f"{name} is listed and not there"
            yield from command_parts(below, click.Context(below, info_name=name, parent=context), level + 1)
        return
    yield f"```text\n{' '.join((context.command_path, *command.collect_usage_pieces(context)))}\n```\n"
    options = [p for p in command.params if isinstance(p, click.Option)]
    records = [record for option in options if (record := option.get_help_record(context)) is not None]
    yield table(("Option", "What it does"), [(f"`{' '.join(names.split())}`", " ".join(text.split())) for names, text in records])
    example = textwrap.dedent((command.epilog or "").partition("Example:\n")[2]).strip()
    assert example, f"{context.command_path} has no example in its help"
    yield f"Example:\n\n```console\n{example}\n```\n"


def described_help(command: click.Command) -> str:
    """The description; click's marker `\\b` keeps the lines of a paragraph, which becomes a fenced block."""
    paragraphs = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b\n"):
            paragraphs.append(f"```text\n{paragraph[2:]}\n```")
        else:
            paragraphs.append(paragraph)
    return "\n\n".join(paragraphs) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "authoring.md": authoring,
    "cli.md": command_line,
    "errors.md": error_tree,
    "hooks.md": hooks,
    "operators.md": operators,
    "passes.md": passes,
    "python.md": python_api,
}

if __name__ == "__main__":
    sys.exit(main())
