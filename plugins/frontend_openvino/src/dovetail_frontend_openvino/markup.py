"""XML to elements with line numbers: UTF-8, no DOCTYPE, no entities of its own, bounded in depth and number."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from dovetail.frontend import MAX_RANK, FormatError, printable

__all__ = ["Element", "parse"]

MAX_DEPTH = 136
"""A sub-graph adds four levels, and sub-graphs may be nested 32 deep: Python's own stack sets the limit."""

_ELEMENTS = 150_000
_BYTES_FOR_AN_ELEMENT = 100
"""A file may have 150,000 elements that are kept, and one more for every 100 bytes, so that what is kept fits into four times its
size and 256 MB. save_model writes one for 75 bytes or more: models of up to 47 MB of XML, 70,000 layers, are below the limit."""

_SKIPPED = frozenset({"rt_info", "meta_data", "statistics", "quantization_parameters"})
_PUT_TOGETHER = frozenset({"dim"})
_ENCODINGS = ("utf-8", "utf8", "us-ascii", "ascii")
_REFUSED = "IR has neither DOCTYPE nor entities; such a file is never expanded"


@dataclass(slots=True)
class Element:
    """One element. `dims` are the texts of its `dim` children, which are not among `children`."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list["Element"] = field(default_factory=list)
    dims: list[str] = field(default_factory=list)

    def child(self, tag: str) -> "Element | None":
        """The only child of this tag, or None. Raises `FormatError` for two."""
        found = list(self.all(tag))
        if len(found) > 1:
            raise FormatError(f"line {found[1].line}: a second <{tag}> in <{self.tag}>", hint="accepted: one")
        return found[0] if found else None

    def all(self, tag: str) -> Iterator["Element"]:
        """The children of this tag, in order."""
        return (child for child in self.children if child.tag == tag)

    def required(self, name: str) -> str:
        """An attribute's text. Raises `FormatError` when it is missing."""
        value = self.attributes.get(name)
        if value is None:
            raise FormatError(f"line {self.line}: <{printable(self.tag)}> has no attribute '{name}'")
        return value


def parse(content: bytes) -> Element:
    """The root element. Raises `FormatError` with the line for anything but well-formed XML in UTF-8 without a DOCTYPE."""
    builder = _Builder(_ELEMENTS + len(content) // _BYTES_FOR_AN_ELEMENT)
    try:
        builder.parser.Parse(content, True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise FormatError(
            f"line {error.lineno}: not well-formed XML: {reason}", hint="an IR is one XML document in UTF-8 with the root <net>"
        ) from None
    if builder.root is None:
        raise FormatError("line 1: the root element is not <net>", hint="is this an OpenVINO IR?")
    return builder.root


class _Builder:
    def __init__(self, limit: int) -> None:
        self.root: Element | None = None
        self._limit = limit
        self._count = 0
        self._open: list[Element] = []
        self._skipping = 0
        self._text: list[str] | None = None
        self.parser = expat.ParserCreate("utf-8")
        self.parser.buffer_text = True
        self.parser.XmlDeclHandler = self._declaration
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.EntityDeclHandler = self._doctype
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters

    @property
    def _line(self) -> int:
        return self.parser.CurrentLineNumber

    def _declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        if encoding is not None and encoding.lower() not in _ENCODINGS:
            raise FormatError(f"line 1: the encoding is '{printable(encoding)}'", hint="accepted: UTF-8")

    def _doctype(self, *_: Any) -> None:
        raise FormatError(f"line {self._line}: the file has a DOCTYPE or an entity declaration", hint=_REFUSED)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._skipping or tag in _SKIPPED:
            self._skipping += 1
            self._check_depth()
            return
        if tag in _PUT_TOGETHER:
            if self._text is not None or attributes:
                raise FormatError(f"line {self._line}: <{tag}> holds one number and has no attributes")
            self._text = []
            return
        if self._text is not None:
            raise FormatError(f"line {self._line}: <{printable(tag)}> inside <dim>", hint="accepted: a number")
        self._add(Element(tag, attributes, self._line))

    def _add(self, element: Element) -> None:
        self._count += 1
        if self._count > self._limit:
            raise FormatError(
                f"line {element.line}: the file has more than {self._limit} elements", hint="a file of its size has less"
            )
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)
        self._check_depth()

    def _check_depth(self) -> None:
        if len(self._open) + self._skipping > MAX_DEPTH:
            raise FormatError(f"line {self._line}: elements are nested more than {MAX_DEPTH} deep")

    def _end(self, tag: str) -> None:
        if self._skipping:
            self._skipping -= 1
        elif self._text is not None:
            if not self._open:
                raise FormatError(f"line {self._line}: <dim> outside of a <port>")
            dims = self._open[-1].dims
            dims.append("".join(self._text).strip())
            if len(dims) > MAX_RANK:
                raise FormatError(
                    f"line {self._line}: the port has more than {MAX_RANK} dimensions", hint="accepted: at most that many"
                )
            self._text = None
        else:
            self._open.pop()

    def _characters(self, text: str) -> None:
        if self._text is not None and not self._skipping:
            self._text.append(text)
        elif not self._skipping and not text.isspace():
            raise FormatError(f"line {self._line}: text where none is accepted: '{printable(text.strip())}'")
