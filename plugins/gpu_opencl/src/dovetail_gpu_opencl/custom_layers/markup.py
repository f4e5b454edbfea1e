"""XML into elements that know their line. Nothing in a file can refer to anything: no document type, no entities."""

import codecs
import re
from collections.abc import Sequence
from typing import NoReturn
from xml.parsers import expat

from dovetail.dataclass import dataclass, field
from dovetail.errors import FormatError
from dovetail.frontend import printable

__all__ = ["Element", "decoded", "malformed", "parse"]

_DEPTH = 8
"""The format needs four levels."""
_DECLARATION = re.compile(r"\s*<\?xml\b[^>]*\?>")
_ENCODING = re.compile(rb"""^\s*<\?xml\b[^>]*?\bencoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


@dataclass(slots=True)
class Element:
    """An element of the file: its attributes as written, the line where it begins, and its children in order."""

    name: str
    line: int
    attributes: dict[str, str]
    children: "list[Element]" = field(default_factory=list)


def malformed(file: str, line: int, what: str, accepted: str = "") -> FormatError:
    """The error for a line of a file."""
    return FormatError(f"{file}:{line}: {what}", hint=f"accepted: {accepted}" if accepted else "")


def decoded(content: bytes, file: str) -> str:
    """The text of an XML file, by its byte order mark, else by its declaration, else UTF-8. Raises `FormatError`."""
    declared = _ENCODING.match(content[:200])
    encoding = next((name for mark, name in _MARKS if content.startswith(mark)), declared[1].decode() if declared else "utf-8")
    try:
        return content.decode(encoding)
    except LookupError:
        raise malformed(file, 1, f"the encoding {encoding!r} is not known", "UTF-8") from None
    except (UnicodeError, ValueError) as error:
        raise malformed(file, 1, f"the content is not {encoding}: {error}") from None


def parse(text: str, file: str) -> Sequence[Element]:
    """The elements at the top of a file: any number, although XML proper has one. Raises `FormatError` with file and line."""
    # The added element is in the first line, so that line numbers are those of the file.
    declaration = _DECLARATION.match(text)
    blank = re.sub(r"[^\n]", " ", declaration[0]) if declaration else ""
    try:
        content = f"<roots>{blank}{text[len(blank) :]}</roots>".encode()
    except UnicodeEncodeError as error:
        raise malformed(file, text.count("\n", 0, error.start) + 1, "bytes that are not a character") from None
    builder = _Builder(file)
    try:
        builder.parser.Parse(content, True)
    except expat.ExpatError as error:
        at = builder.parser.ErrorByteIndex
        if re.search(rb"<!\s*[A-Z]", content[max(0, at - 2) : at + 12]):
            what = "a document type or entity declaration; they are refused"
            raise malformed(file, error.lineno, what, "elements, attributes and comments") from None
        innermost = builder.innermost
        inside = f"; <{printable(innermost.name)}> of line {innermost.line} is open" if innermost.line else ""
        raise malformed(file, error.lineno, f"not well-formed XML: {expat.ErrorString(error.code)}{inside}") from None
    return builder.root.children


class _Builder:
    def __init__(self, file: str) -> None:
        self._file = file
        self.root = Element("", 0, {})
        self._open = [self.root]
        self.parser = expat.ParserCreate("utf-8")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._doctype

    @property
    def innermost(self) -> Element:
        """The element that was not closed yet, the root if all were."""
        return self._open[-1]

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        line = self.parser.CurrentLineNumber
        if len(self._open) > _DEPTH:
            raise malformed(self._file, line, f"elements are nested more than {_DEPTH} deep")
        element = self.root if len(self._open) == 1 and not self.root.name else Element(name, line, attributes)
        if element is self.root:
            self.root.name = name
        else:
            self._open[-1].children.append(element)
        self._open.append(element)

    def _end(self, _: str) -> None:
        self._open.pop()

    def _text(self, text: str) -> None:
        if text.strip():
            raise malformed(self._file, self.parser.CurrentLineNumber, f"text {printable(text.strip(), 40)!r}", "elements only")

    def _doctype(self, *_: object) -> NoReturn:
        raise malformed(self._file, self.parser.CurrentLineNumber, "a document type; it is refused")
