"""Making HTML from values: everything is escaped unless it is `Html` already."""

import base64
import html
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.command import clean

__all__ = ["Html", "element", "join", "picture", "table", "text"]


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: object) -> Html:
    """`value` as HTML text; `Html` stays as it is."""
    return value if isinstance(value, Html) else Html(html.escape(clean(value)))


def element(tag: str, *content: object, **attributes: object) -> Html:
    """`<tag attributes>content</tag>`. `class_` is the attribute class; attributes that are None or empty are left out."""
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(clean(value))}"' for name, value in attributes.items() if value
    )
    return Html(f"<{tag}{given}>{''.join(map(text, content))}</{tag}>")


def join(parts: Sequence[Html], separator: str = "\n") -> Html:
    """Pieces of HTML one after another."""
    return Html(separator.join(parts))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Html:
    """A table; columns whose name starts with `>` hold numbers."""
    kinds = ["number" if column.startswith(">") else None for column in columns]
    head = (element("th", c.removeprefix(">"), class_=kind, scope="col") for c, kind in zip(columns, kinds, strict=True))
    body = (element("tr", *(element("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True))) for row in rows)
    return element("table", element("thead", element("tr", *head)), element("tbody", *body))


def picture(pixels: NDArray[Any], white: int, label: str) -> Html:
    """An image element that holds a grey picture [H, W] of values 0 (paper) to `white` (ink), as a PNG of a few dozen bytes."""
    source = "data:image/png;base64," + base64.b64encode(_png(255 - pixels.astype(np.float64) * 255 / white)).decode()
    return Html(f'<img class="digit" src="{source}" alt="{html.escape(clean(label))}">')


def _png(grey: NDArray[Any]) -> bytes:
    """PNG (ISO 15948), 8-bit greyscale, no filter."""
    height, width = grey.shape
    lines = b"".join(b"\0" + row.tobytes() for row in np.round(grey).astype(np.uint8))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(lines, 9)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
