"""Protobuf's wire format, decoded into objects of Python: importing the package protobuf takes a tenth of a small first result.

The class of a message says which fields it has (see `protos`). Others are passed over, as protobuf does.
"""

import struct
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BYTES",
    "BYTES_LIST",
    "ENUM",
    "FLOAT",
    "FLOATS",
    "INT32",
    "INT64",
    "INT64S",
    "MESSAGE",
    "MESSAGES",
    "NUMBERS",
    "TEXT",
    "TEXTS",
    "UNREAD",
    "Field",
    "Malformed",
    "Message",
    "TooLarge",
    "by_tag",
    "decode",
]

DEEPEST = 100
"""Messages inside each other, as many as protobuf takes. A sub-graph has three: itself, its node and the attribute."""

_VARINT, _FIXED64, _DELIMITED, _GROUP, _END_OF_GROUP, _FIXED32 = range(6)

TEXT, TEXTS, BYTES, BYTES_LIST, MESSAGE, MESSAGES, UNREAD, INT64, INT32, ENUM, FLOAT, INT64S, FLOATS, NUMBERS = range(14)
"""The kinds of fields: text is `bytes` where it is not UTF-8; `UNREAD` is the content of a message; `NUMBERS` are a list of
arrays, of packed numbers, and numbers."""

_MESSAGE_BYTES, _VALUE_BYTES, _NUMBER_BYTES = 350, 90, 16
"""Memory of a message, of a text besides its characters, and of a number; a little above what was measured."""

_MANY = 64
"""Numbers of a list from which on those that follow are read at once: a node of a tree ensemble may have a million."""

_PIECE = 1 << 20
"""Bytes of numbers that NumPy takes at once, each of which takes some twenty meanwhile."""


class Malformed(Exception):
    """The content is not a message of protobuf."""


class TooLarge(Exception):
    """The message would take more memory than it may."""


class Field(NamedTuple):
    """A field of a message.

    `of` is the class of a message, the NumPy dtype of `NUMBERS`, or the range of an enumeration: protobuf counts other values
    as unknown fields. Of all fields with `is_choice` a message has the last one, and its name as the attribute `value`.
    """

    name: str
    kind: int
    of: Any = None
    is_choice: bool = False


class Message:
    """A message. Its fields are attributes: of the instance where they are given, else of the class, which has the defaults."""

    FIELDS: ClassVar[Mapping[int, Field]] = {}
    """By their tags; see `by_tag`."""

    def has(self, name: str) -> bool:
        """Whether a field is given."""
        return name in vars(self)


M = TypeVar("M", bound=Message)

_WIRE = {INT64: _VARINT, INT32: _VARINT, ENUM: _VARINT, INT64S: _VARINT, FLOAT: _FIXED32, FLOATS: _FIXED32}
_WIRE_OF_DTYPE = {np.float32: _FIXED32, np.float64: _FIXED64}


def by_tag(fields: Mapping[int, Field]) -> dict[int, Field]:
    """Fields by their tags, given by their numbers: two tags for lists of numbers, which may be packed."""
    found = {}
    for number, field in fields.items():
        wire = _WIRE_OF_DTYPE.get(field.of, _VARINT) if field.kind == NUMBERS else _WIRE.get(field.kind, _DELIMITED)
        found[number << 3 | wire] = field
        if field.kind in (INT64S, FLOATS, NUMBERS):
            found[number << 3 | _DELIMITED] = field
    return found


def decode(kind: type[M], content: bytes, limit: float = float("inf")) -> M:
    """The message of a class. Raises `Malformed`, and `TooLarge` where it would take more than `limit` bytes of memory."""
    message = kind()
    try:
        _Decoder(content, limit).fill(message, 0, len(content), 0)
    except IndexError:  # the content ends inside of a number
        raise Malformed from None
    return message


class _Decoder:
    """Fills messages from parts of the content. `room` is the memory that they may still take.

    Not counted are lists of strings and of numbers that are not packed, which take at most sixteen times their bytes: tree
    ensembles have hundreds of megabytes of them.
    """

    def __init__(self, content: bytes, room: float) -> None:
        self._content, self._room = content, room

    def fill(self, message: Message, at: int, end: int, depth: int) -> None:
        """Read the fields in a part of the content. Those that were given before are replaced, or merged with."""
        if depth > DEEPEST:
            raise Malformed
        content, fields, found = self._content, message.FIELDS, vars(message)
        self._room -= _MESSAGE_BYTES
        while at < end:
            tag = content[at]
            at += 1
            if tag >= 0x80:
                tag, at = _varint(content, at - 1)
            field, wire = fields.get(tag), tag & 7
            if wire == _DELIMITED:
                length = content[at]
                at += 1
                if length >= 0x80:
                    length, at = _varint(content, at - 1)
                start, at = at, at + length
                if at > end:
                    raise Malformed
                if field is None:
                    self._pass_over(tag)
                elif field.kind == TEXTS:
                    self._room -= _VALUE_BYTES + length
                    found.setdefault(field.name, []).append(_text(content[start:at]))
                elif field.kind == TEXT:
                    self._room -= _VALUE_BYTES + length
                    found[field.name] = _text(content[start:at])
                    if field.is_choice:
                        _choose(field, found)
                elif field.kind == BYTES_LIST:
                    at = self._strings(found.setdefault(field.name, []), tag, start, at, end)
                else:
                    self._delimited(field, found, start, at, depth)
            elif field is None:
                self._pass_over(tag)
                at = self._end_of(tag, at, depth)
            elif wire == _VARINT:
                value = content[at]
                at += 1
                if value >= 0x80:
                    value, at = _varint(content, at - 1)
                at = self._integer(field, found, value, tag, at, end)
            else:
                at = self._float(field, found, tag, at, end)
            if self._room < 0:
                raise TooLarge
        if at != end:
            raise Malformed

    def _delimited(self, field: Field, found: dict[str, Any], start: int, end: int, depth: int) -> None:
        if field.is_choice:
            _choose(field, found)
        if field.kind == MESSAGE:
            inner = found.get(field.name)
            if inner is None:
                inner = found[field.name] = field.of()
            self.fill(inner, start, end, depth + 1)
        elif field.kind == MESSAGES:
            inner = field.of()
            found.setdefault(field.name, []).append(inner)
            self.fill(inner, start, end, depth + 1)
        elif field.kind == BYTES:
            self._room -= _VALUE_BYTES + end - start
            found[field.name] = self._content[start:end]
        elif field.kind == UNREAD:
            self._room -= _VALUE_BYTES + end - start
            found[field.name] = found.get(field.name, b"") + self._content[start:end]  # which merges messages
        elif start < end:
            numbers = self._packed(field, start, end)
            if field.kind == NUMBERS:
                self._room -= _MESSAGE_BYTES  # that of an array
                found.setdefault(field.name, []).append(numbers)
            else:
                found.setdefault(field.name, []).extend(numbers.tolist())

    def _strings(self, strings: list[bytes], tag: int, start: int, at: int, end: int) -> int:
        """Append a string and the short ones of the same tag that follow it; where they end."""
        content = self._content
        strings.append(content[start:at])
        while at + 1 < end and content[at] == tag < 0x80 and content[at + 1] < 0x80:
            start = at + 2
            at = start + content[at + 1]
            if at > end:
                raise Malformed
            strings.append(content[start:at])
        return at

    def _integer(self, field: Field, found: dict[str, Any], value: int, tag: int, at: int, end: int) -> int:
        """Keep a number; where the next field begins."""
        if field.kind in (INT32, ENUM) or field.of is np.int32:
            value &= 0xFFFFFFFF
            value -= (value >> 31) << 32
        elif field.of is not np.uint64:
            value -= (value >> 63) << 64
        if field.kind not in (INT64S, NUMBERS):
            if field.kind != ENUM or value in field.of:
                found[field.name] = value
            if field.is_choice:
                _choose(field, found)
            return at
        numbers = found.setdefault(field.name, [])
        numbers.append(value)
        return self._many(numbers, tag, at, end) if len(numbers) == _MANY and field.kind == INT64S and tag < 0x80 else at

    def _float(self, field: Field, found: dict[str, Any], tag: int, at: int, end: int) -> int:
        """Keep a number; where the next field begins."""
        layout = "<f" if tag & 7 == _FIXED32 else "<d"
        after = at + struct.calcsize(layout)
        if after > end:
            raise Malformed
        (value,) = struct.unpack_from(layout, self._content, at)
        if field.kind == FLOAT:
            found[field.name] = value
            return after
        numbers = found.setdefault(field.name, [])
        numbers.append(value)
        return self._many(numbers, tag, after, end) if len(numbers) == _MANY and field.kind == FLOATS and tag < 0x80 else after

    def _many(self, numbers: list[Any], tag: int, at: int, end: int) -> int:
        """Append the numbers of the fields of one tag that follow each other; where they end."""
        while True:
            content = np.frombuffer(self._content, np.uint8, min(end - at, _PIECE), at)
            found, size = _floats_of(content, tag) if tag & 7 == _FIXED32 else _integers_of(content, tag)
            if not len(found):
                return at
            numbers += found.tolist()
            at += size

    def _packed(self, field: Field, start: int, end: int) -> NDArray[Any]:
        dtype = {FLOATS: np.float32, INT64S: np.int64}.get(field.kind, field.of)
        if dtype in _WIRE_OF_DTYPE:
            stored: np.dtype[Any] = np.dtype(dtype).newbyteorder("<")
            if (end - start) % stored.itemsize:
                raise Malformed
            return np.frombuffer(self._content[start:end], stored)
        content = np.frombuffer(self._content, np.uint8, end - start, start)
        self._room -= _NUMBER_BYTES * int(np.count_nonzero(content < 0x80))
        if self._room < 0:
            raise TooLarge
        found: NDArray[Any] = np.concatenate([*_pieces(content)])
        return found.astype(np.uint32).view(np.int32) if dtype is np.int32 else found.view(dtype)

    def _pass_over(self, tag: int) -> None:
        """Count a field that is not known, so that the time for many of them is limited too."""
        self._room -= _NUMBER_BYTES
        if tag < 8 or tag >> 32:
            raise Malformed

    def _end_of(self, tag: int, at: int, depth: int) -> int:
        """Where a field ends of which this is the tag, unless it has a length."""
        wire = tag & 7
        if wire == _VARINT:
            return _varint(self._content, at)[1]
        if wire in (_FIXED32, _FIXED64):
            return at + (4 if wire == _FIXED32 else 8)
        if wire != _GROUP or depth > DEEPEST:
            raise Malformed
        while True:
            inner, at = _varint(self._content, at)
            if inner == tag - _GROUP + _END_OF_GROUP:
                return at
            self._pass_over(inner)
            if inner & 7 == _DELIMITED:
                length, at = _varint(self._content, at)
                at += length
            else:
                at = self._end_of(inner, at, depth + 1)
            if self._room < 0:
                raise TooLarge


def _choose(field: Field, found: dict[str, Any]) -> None:
    before = found.get("value")
    if before is not None and before != field.name:
        del found[before]
    found["value"] = field.name


def _text(content: bytes) -> str | bytes:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """A number of 64 bits, and where it ends. Raises `IndexError` at the end of the content."""
    value = shift = 0
    while shift < 70:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise Malformed


def _floats_of(content: NDArray[np.uint8], tag: int) -> tuple[NDArray[Any], int]:
    """The numbers of the fields of this tag with which the content begins, and their bytes."""
    rows = content[: content.size // 5 * 5].reshape(-1, 5)
    count = _length(rows[:, 0] == tag)
    return rows[:count, 1:].copy().view("<f4").reshape(-1), 5 * count


def _integers_of(content: NDArray[np.uint8], tag: int) -> tuple[NDArray[Any], int]:
    """As `_floats_of`: every second byte below 128 ends a number, and those between are the tags, where all is regular."""
    ends = np.flatnonzero(content < 0x80)
    lasts = ends[1::2]
    tags = ends[::2][: lasts.size]
    begins = np.zeros_like(lasts)
    begins[1:] = lasts[:-1] + 1
    count = _length((tags == begins) & (content[tags] == tag) & (lasts - tags <= 10))
    values = _varints(content, tags[:count] + 1, lasts[:count])
    return values.view(np.int64), int(lasts[count - 1]) + 1 if count else 0


def _length(are_regular: NDArray[np.bool_]) -> int:
    others = np.flatnonzero(~are_regular)
    return int(others[0]) if others.size else are_regular.size


def _pieces(content: NDArray[np.uint8]) -> "list[NDArray[np.uint64]]":
    """The numbers of packed content, piece by piece."""
    found, at = [], 0
    while at < content.size:
        lasts = np.flatnonzero(content[at : at + _PIECE] < 0x80)
        if not lasts.size:
            raise Malformed
        firsts = np.zeros_like(lasts)
        firsts[1:] = lasts[:-1] + 1
        found.append(_varints(content[at:], firsts, lasts))
        at += int(lasts[-1]) + 1
    return found


def _varints(content: NDArray[np.uint8], firsts: NDArray[Any], lasts: NDArray[Any]) -> NDArray[np.uint64]:
    """The numbers between these places, both included."""
    values, lengths = np.zeros(firsts.size, np.uint64), lasts - firsts + 1
    longest = int(lengths.max(initial=0))
    if longest > 10:
        raise Malformed
    for index in range(longest):
        some = lengths > index
        values[some] |= (content[firsts[some] + index] & 0x7F).astype(np.uint64) << np.uint64(7 * index)
    return values
