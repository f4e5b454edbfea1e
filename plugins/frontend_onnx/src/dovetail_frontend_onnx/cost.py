"""The memory that protobuf needs for a message, estimated before parsing: two bytes take up to 200 bytes in memory."""

import re
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.frontend import FormatError
from dovetail_frontend_onnx.messages import AttributeProto, ModelProto, NodeProto

__all__ = ["check_cost"]

_GROWTH = 3
_GROWTH_OF_SMALL = 192 * 2**20
"""A file may take 3 times its size and 192 MiB; with its content itself and what else is needed, 4 times and 256 MiB.

Numbers and strings of attributes come on top: tree ensembles have hundreds of megabytes of them. They take at most 16 times
their bytes in the file.
"""

_MESSAGE, _MESSAGE_FIELD = 40, 12
"""Bytes of a message, and more for each field that its type has: a little above what was measured with protobuf 7."""
_NODE = 450
"""A node as it is kept after parsing, with its names."""
_STRING, _NUMBER = 32, 16
"""A string besides its characters, and a number of 64 bits, with the room that a growing array leaves."""
_PIECE = 2**16
"""Bytes counted at once, in half the time of a million: NumPy makes eight of each, for which the system clears new pages."""


@dataclass(frozen=True, slots=True)
class _Field:
    """The cost of a field with a length: itself, each packed number in it, and the type of the message in it."""

    cost: int
    number: int = 0
    inner: Any = None


_UNKNOWN = _Field(0)


_ATTRIBUTE = AttributeProto.DESCRIPTOR


@cache
def _plain_fields() -> dict[int, re.Pattern[bytes]]:
    """Tag -> a run of `floats`, `ints` or short `strings` of an attribute, which are not packed. Compiling takes 3 ms."""
    lengths = b"|".join(re.escape(bytes([n])) + b".{%d}" % n for n in range(0x80))
    return {
        7 << 3 | 5: re.compile(b"(?:\\x3d.{4})++", re.DOTALL),
        8 << 3: re.compile(b"(?:\\x40[\\x80-\\xff]{0,9}[\\x00-\\x7f])++"),
        9 << 3 | 2: re.compile(b"(?:\\x4a(?:%s))++" % lengths, re.DOTALL),
    }


def check_cost(content: bytes, size: int, limit: int | None = None) -> None:
    """Raise `FormatError` when parsing `content`, from a file of `size` bytes, would take memory out of all proportion to it.

    `limit` replaces the bytes that are accepted.
    """
    limit = _GROWTH_OF_SMALL + _GROWTH * size if limit is None else limit
    at_most = len(content) * (1 + int(_costs_by_byte().max()))  # without a look at them
    if at_most > limit and _upper_bound(content) > limit and _cost(content, limit) > limit:
        raise FormatError(
            f"parsing the {size} bytes would take more than {limit} bytes of memory, so many small messages are in them",
            hint="is this an ONNX model? One that you trust is read with read_model(..., parse_limit=BYTES)",
        )


def _upper_bound(content: bytes) -> int:
    """An upper bound of `_cost`, found faster: as if every byte that may be the tag of something were one."""
    bytes_of = np.frombuffer(content, np.uint8)
    pieces = (bytes_of[at : at + _PIECE] for at in range(0, len(content), _PIECE))
    counts = sum(np.bincount(piece, minlength=256) for piece in pieces)
    return len(content) + int(counts @ _costs_by_byte())


@cache
def _costs_by_byte() -> NDArray[np.int64]:
    """For each byte the most that a field costs whose tag ends in it, or a number."""
    found = np.full(256, _NUMBER, np.int64)
    seen, waiting = set(), [ModelProto.DESCRIPTOR]
    while waiting:
        descriptor = waiting.pop()
        if descriptor.full_name not in seen:
            seen.add(descriptor.full_name)
            for tag, field in _fields(descriptor).items():
                last = tag >> (tag.bit_length() - 1) // 7 * 7
                found[last] = max(found[last], field.cost)
                waiting += [field.inner] if field.inner is not None else []
    return found


@cache
def _fields(descriptor: Any) -> dict[int, _Field]:
    """The fields of a message type by their tags."""
    return {field.number << 3 | 2: _field(field) for field in descriptor.fields}


def _field(field: Any) -> _Field:
    inner = field.message_type
    if inner is not None:
        node = _NODE if inner.full_name == NodeProto.DESCRIPTOR.full_name else 0
        return _Field(_MESSAGE + _MESSAGE_FIELD * len(inner.fields) + node, inner=inner)
    if field.cpp_type == field.CPPTYPE_STRING:
        return _Field(_STRING)
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return _Field(0)  # as many bytes as in the file
    return _Field(0, _NUMBER if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) else _NUMBER // 2)


def _cost(content: bytes, limit: int) -> int:
    """The bytes that parsing takes at most, counted until they exceed the limit. What protobuf will refuse is passed over."""
    total = 0
    waiting: list[tuple[int, int, Any]] = [(0, len(content), ModelProto.DESCRIPTOR)]
    while waiting and total <= limit:
        at, end, descriptor = waiting.pop()
        fields = _fields(descriptor)
        plain = _plain_fields() if descriptor.full_name == _ATTRIBUTE.full_name else {}
        while at < end and total <= limit:
            if run := plain.get(content[at]):
                found = run.match(content, at, end)
                if found is not None:
                    at = found.end()
                    continue
            tag, at = _varint(content, at)
            kind = tag & 7
            if kind == 2:
                length, at = _varint(content, at)
                field = fields.get(tag, _UNKNOWN)
                total += field.cost + length
                if field.number:
                    total += field.number * _numbers(content[at : at + length])
                elif field.inner is not None and length:
                    waiting.append((at, min(at + length, end), field.inner))
                    total -= length  # its fields are counted one by one
                at += length
            else:
                at = _varint(content, at)[1] if kind == 0 else at + _FIXED.get(kind, 0)
                total += _NUMBER
    return total


_FIXED = {1: 8, 5: 4}
"""Bytes of the numbers that are not varints."""


def _numbers(packed: bytes) -> int:
    """How many varints there are: each ends in a byte below 128."""
    return int(np.count_nonzero(np.frombuffer(packed, np.uint8) < 0x80))


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and the place after it; past the end, 0."""
    if at >= len(content):
        return 0, at + 1
    byte = content[at]
    at += 1
    if byte < 0x80:
        return byte, at
    value, shift = byte & 0x7F, 7
    while byte >= 0x80 and at < len(content) and shift < 70:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return value, at
