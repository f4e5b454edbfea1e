"""Tables for notebooks (`_repr_html_`)."""

from collections.abc import Iterable, Sequence

from dovetail.names import printable

__all__ = ["html_table"]

_ROWS = 100


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with escaped text. What is more than 100 rows is left out, and counted."""
    from html import escape  # 1 ms at start-up

    found = list(rows)
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    cells = ("".join(f"<td>{escape(printable(str(cell)))}</td>" for cell in row) for row in found[:_ROWS])
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    more = f"<p>{len(found) - _ROWS} more</p>" if len(found) > _ROWS else ""
    return f"<table><caption>{escape(printable(title))}</caption><tr>{head}</tr>{body}</table>{more}"
