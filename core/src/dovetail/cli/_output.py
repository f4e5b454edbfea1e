"""Printing: tables or JSON to stdout, remarks and progress to stderr, control characters made visible."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from dovetail.names import visible

__all__ = [
    "clean",
    "count",
    "duration",
    "print_json",
    "print_table",
    "print_text",
    "progress",
    "remark",
    "show",
    "size",
    "styled",
    "value_type",
    "without_warnings",
]

_WIDE = 10_000
"""Columns of a table that goes to a pipe or a file: nothing is cut off or wrapped there."""

_WHOLE = 24
"""The longest cell that is kept from being folded."""

_STYLES = {
    "loaded": "green",
    "failed": "bold red",
    "incompatible": "red",
    "unavailable": "yellow",
    "blocked": "yellow",
    "opt-in": "cyan",
}


def clean(text: object, *, keep_lines: bool = False) -> str:
    """`text` with control and direction-changing characters written as escapes: model files may hold any name.

    `keep_lines` leaves newlines alone.
    """
    return visible(str(text), "\n" if keep_lines else "")


def print_json(data: object) -> None:
    """One JSON document. Numbers that JSON does not have (NaN, infinity) become null."""
    click.echo(json.dumps(_finite(data), indent=2, allow_nan=False))


def show(described: Any, as_json: bool, print_tables: Callable[[Any], object]) -> None:
    """The result of a command: as JSON, or by `print_tables`."""
    (print_json if as_json else print_tables)(described)


def _finite(data: object) -> object:
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {str(key): _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(item) for item in data]
    return data


def styled(state: str) -> Any:
    """A plugin state or other keyword in its colour."""
    from rich.text import Text

    return Text(state, style=_STYLES.get(state, ""))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str = "none") -> None:
    """A table. A column whose name starts with `>` holds numbers and is set flush right. Cells are text or from `styled`."""
    if not rows:
        click.echo(f"{clean(title)}: {empty}\n")
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else _WIDE)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    cells = [[cell if isinstance(cell, Text) else Text(clean(cell, keep_lines=True)) for cell in row] for row in rows]
    for index, column in enumerate(columns):
        right = column.startswith(">")
        # On a narrow terminal the other columns are folded first: what a row is about, and its numbers, stay in one piece.
        whole = (right or index == 0) and max(len(row[index]) for row in cells) <= _WHOLE
        table.add_column(column.removeprefix(">"), justify="right" if right else "left", overflow="fold", no_wrap=whole)
    for row in cells:
        table.add_row(*row)
    # Not the table's own title, which is folded to the width of the table.
    console.print(Text(clean(title), style="bold"), table)


def print_text(text: str = "") -> None:
    """A line of the result."""
    click.echo(clean(text, keep_lines=True))


def remark(text: str) -> None:
    """A line that is not part of the result."""
    click.echo(clean(text, keep_lines=True), err=True)


@contextmanager
def progress(label: str, total: float) -> Iterator[Callable[[float], None]]:
    """A progress bar on stderr, only when that is a terminal. Gives a function that advances it."""
    if not sys.stderr.isatty():
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(clean(label).replace("[", "\\["), total=total)
        yield lambda amount: bar.update(task, advance=amount)


@contextmanager
def without_warnings() -> Iterator[None]:
    """dovetail's warnings are not logged inside of the block."""
    import logging  # here, because listing plugins needs no more than a table

    logger = logging.getLogger("dovetail")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def duration(seconds: float) -> str:
    """`1.23 s`, `4.56 ms`, `7.89 us`: three digits."""
    unit, factor = ("s", 1.0) if seconds >= 1 else ("ms", 1e3) if seconds >= 1e-3 else ("us", 1e6)
    return f"{_three_digits(seconds * factor)} {unit}"


def count(number: float) -> str:
    """`12,010`; from a million on `2.50 M`, `8.21 G`: three digits."""
    for letter, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if number >= factor:
            return f"{_three_digits(number / factor)} {letter}"
    return f"{number:,.0f}"


def size(nbytes: float) -> str:
    """`640 B`, `12.5 kB`, `97.7 MB`; a kB is 1000 bytes."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= factor:
            return f"{_three_digits(nbytes / factor)} {unit}"
    return f"{nbytes:.0f} B"


def _three_digits(number: float) -> str:
    return f"{number:.{max(0, 2 - int(math.log10(number)))}f}" if number >= 1 else f"{number:.3g}"


def value_type(value: Any) -> dict[str, Any]:
    """`dtype` and `shape` of an output; for a sequence or a map its length, for an optional that is absent nothing."""
    if isinstance(value, list | dict):
        return {"dtype": "sequence" if isinstance(value, list) else "map", "shape": [len(value)]}
    return {"dtype": "optional", "shape": []} if value is None else {"dtype": value.dtype.name, "shape": list(value.shape)}
