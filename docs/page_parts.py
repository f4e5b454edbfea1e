"""Parts of generated pages: tables, links, signatures, and docstrings as Markdown."""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTE = "<!-- Written by docs/generate.py from the code. Do not edit: run `python docs/generate.py`. -->\n"


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
    """Without indentation, and with two empty lines before and after a block of its own."""
    text = re.sub(r"\n\n(?=@|class |def )", "\n\n\n", textwrap.dedent(code).strip())
    return re.sub(r"(\n {4}[^\n]*\n)\n(?=\w)", r"\1\n\n", text)


def signature(function: Callable[..., object]) -> str:
    """`def name(argument: Type) -> Type`, annotations as in the source."""
    source = textwrap.dedent(inspect.getsource(function))
    found = re.search(r"^def .*?:\n", source, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{function} has no def line"
    return re.sub(r'(: |-> )"([^"]+)"', r"\1\2", found[0].rstrip(":\n"))
