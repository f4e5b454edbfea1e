"""The generated pages that describe public names: authoring.md and python.md."""

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from page_parts import NOTE, ROOT, documented, signature, table

import dovetail.cli
from dovetail import errors, runtime

# --- what authors import ---------------------------------------------------------------------------------------------

AUTHORING = (
    "dovetail.op",
    "dovetail.device",
    "dovetail.virtual",
    "dovetail.devices.hosting",
    "dovetail.passes",
    "dovetail.frontend",
    "dovetail.dataclass",
    "dovetail.command",
    "dovetail.plugins",
    "dovetail.plugins.rules",
    "dovetail.cache",
    "dovetail.cpus",
    "dovetail.locks",
    "dovetail.lru",
    "dovetail.testing",
)
"""The modules for authors of packages, each name described in the first of them that has it."""


def authoring() -> str:
    """authoring.md: every public name of the modules for authors."""
    parts = [f"# What authors import\n\n{NOTE}", AUTHORING_HEAD]
    homes: dict[str, str] = {}
    elsewhere = {name.rpartition(".")[2]: f"python.md#{name.replace('.', '').lower()}" for name in PROGRAMS}
    elsewhere |= {name: "errors.md" for name in errors.__all__ if isinstance(getattr(errors, name), type)}
    for name in AUTHORING:
        module = importlib.import_module(name)
        new = [member for member in module.__all__ if member not in homes and member not in elsewhere]
        known = [linked_above(homes[member], member) for member in module.__all__ if member in homes]
        homes.update(dict.fromkeys(new, name))
        parts += [f"## {name}\n", documented(module)]
        known += [f"[{member}]({elsewhere[member]})" for member in module.__all__ if member in elsewhere]
        parts += [f"Described elsewhere: {', '.join(known)}.\n"] if known else []
        plain = [member for member in new if is_constant(member, getattr(module, member))]
        parts += [table(("Name", "Description"), [(f"`{member}`", constant(member)) for member in plain])] if plain else []
        for member in (member for member in new if member not in plain):
            parts += [f"### {name.removeprefix('dovetail.')}.{member}\n", *entry(member, getattr(module, member))]
    return "\n".join(parts)


AUTHORING_HEAD = """\
The modules that packages import, and all of their names. Besides these, plugins import `dovetail.hookspecs` ([Hooks](hooks.md)),
`dovetail.errors` ([Errors](errors.md)), the graph in `dovetail.graph`, and the classes of standard operators from
`dovetail_ops_onnx` ([Operators](operators.md)). Everything else may change without notice. A subclass has to define the members
that are abstract; those with a type and no brackets are properties.
"""


def linked_above(module: str, member: str) -> str:
    """A link to a name's heading, or to its module's if it is in the table there."""
    heading = module if is_constant(member, named(f"{module}.{member}")) else f"{module.removeprefix('dovetail.')}{member}"
    return f"[{member}](#{heading.lower().replace('.', '')})"


def is_constant(name: str, value: object) -> bool:
    """True for a value, for which the text below its assignment stands. Options of click are functions of another name."""
    return not isinstance(value, type) and getattr(value, "__name__", "") != name


def entry(name: str, value: Any, specials: Iterable[tuple[str, str]] = ()) -> Iterator[str]:
    """The paragraphs that describe a name: how it is declared, its docstring, its public methods and `specials`."""
    source = textwrap.dedent(inspect.getsource(value))
    declared = ast.parse(source).body[0]
    if isinstance(declared, ast.FunctionDef):
        yield fenced(signature(value) if inspect.isfunction(value) else name)
        yield documented(value)
        return
    assert isinstance(declared, ast.ClassDef)
    lines = [*class_lines(declared, source.splitlines())]
    if lines != [f"class {declared.name}: ..."]:
        yield fenced("\n".join(lines))
    yield documented(value)
    fields = [(target, text) for target, text in followed_by_text(declared.body)]
    if fields:
        yield "".join(f"- `{target}`: {' '.join(text.split())}\n" for target, text in fields)
    methods = [(heading(method), described(method)) for method in public_methods(declared)]
    if listed := [f"- **`{shown}`** {text}".rstrip() + "\n" for shown, text in (*methods, *specials)]:
        yield "".join(listed)


def described(method: ast.FunctionDef) -> str:
    """The docstring of a method on one line, marked where subclasses have to define it."""
    abstract = "*Abstract.* " if "abstractmethod" in map(ast.unparse, method.decorator_list) else ""
    return abstract + " ".join((ast.get_docstring(method) or "").split())


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
    """The methods and properties that have a name for users; of one with overloads the definition, which has the docstring."""
    methods = [s for s in declared.body if isinstance(s, ast.FunctionDef) and not s.name.startswith("_")]
    return [method for method in methods if "overload" not in map(ast.unparse, method.decorator_list)]


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
    rows += [(f"`dovetail.runtime.{name}`", constant(name)) for name in runtime.__all__ if name in constants()]
    parts = [f"# Python\n\n{NOTE}", PYTHON_HEAD, table(("Name", "Description"), rows)]
    for name in described:
        value = named(name)
        parts += [f"## {name}\n", *entry(name.rpartition(".")[2], value, specials(name, value))]
    return "\n".join(parts)


PROGRAMS = (
    "dovetail.Core",
    "dovetail.Model",
    "dovetail.CompiledModel",
    "dovetail.Recipe",
    "dovetail.InferRequest",
    "dovetail.Trace",
    "dovetail.AsyncInferQueue",
    "dovetail.PostOps",
    "dovetail.plugins.register",
    "dovetail.plugins.temporary",
)
"""Names that a program starts from, in the order in which it meets them; those that they return come after."""

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
The names that programs use to run models. [Your first model](../tutorial/first_model.md) is an example; the properties of
`compile_model` are on [a separate page](properties.md). All of it may be called from any thread; an `InferRequest` is used by
one thread at a time.

Other public names:
"""


def named(name: str) -> object:
    """The object that a dotted name of the package means."""
    module, _, member = name.rpartition(".")
    return getattr(importlib.import_module(module), member)


def specials(name: str, value: object) -> Iterator[tuple[str, str]]:
    """How a program makes objects of a class, and calls them, where it does."""
    for special, shown in ((f"{name}.__init__", name.rpartition(".")[2]), (f"{name}.__call__", "compiled")):
        if special in SPECIALS:
            method = ast.parse(textwrap.dedent(inspect.getsource(getattr(value, special.rpartition(".")[2])))).body[0]
            assert isinstance(method, ast.FunctionDef)
            shown = heading(method).replace(method.name, shown, 1).removesuffix(" -> None")
            yield shown, " ".join((ast.get_docstring(method) or "").split())


SPECIALS = (
    "dovetail.Core.__init__",
    "dovetail.AsyncInferQueue.__init__",
    "dovetail.PostOps.__init__",
    "dovetail.CompiledModel.__call__",
)
