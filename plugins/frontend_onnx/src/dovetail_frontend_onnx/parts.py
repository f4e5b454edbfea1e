"""A model file in two parts: a message small enough to be parsed, and the bytes of large tensors, each read once.

Tensors are the initializers of a graph and the attributes of its nodes: some exporters write all weights as Constant. Graphs
are the main one and those that are attributes of nodes; messages of local functions are left as they are.

Protobuf would copy them into the message, and hand out one more copy. The largest ones of a file stay there, as external data
does: it is mapped.
"""

import os
from collections.abc import Callable, Container, Mapping
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.frontend import SMALLEST_REGION, MappedFile
from dovetail_frontend_onnx.context import KEY_BYTES
from dovetail_frontend_onnx.messages import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

__all__ = ["LARGE", "Parts", "read_parts"]

LARGE = 4096
"""Bytes from which on the raw data of a tensor is kept apart."""
_ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector of current CPUs."""

_DEPTH = 20
"""Graphs inside each other that are looked into. Each takes nine calls of Python, and protobuf accepts 33."""

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_MAIN, _INITIALIZER, _NODE, _ATTRIBUTE, _TENSOR, _GRAPH, _RAW_DATA = (
    number << 3 | _LENGTH_DELIMITED
    for number in (
        ModelProto.GRAPH_FIELD_NUMBER,
        GraphProto.INITIALIZER_FIELD_NUMBER,
        GraphProto.NODE_FIELD_NUMBER,
        NodeProto.ATTRIBUTE_FIELD_NUMBER,
        AttributeProto.T_FIELD_NUMBER,
        AttributeProto.G_FIELD_NUMBER,
        TensorProto.RAW_DATA_FIELD_NUMBER,
    )
)

_LISTS = frozenset(
    {
        AttributeProto.FLOATS_FIELD_NUMBER << 3 | _FIXED32,
        AttributeProto.INTS_FIELD_NUMBER << 3 | _VARINT,
        AttributeProto.STRINGS_FIELD_NUMBER << 3 | _LENGTH_DELIMITED,
    }
)
"""Fields that an attribute has once for each element of a list."""

Cut = Callable[[int], bytes | bytearray]
"""Reads so many bytes of a field and returns what the message shall have instead."""


@dataclass(frozen=True)
class Parts:
    """`message` is the ModelProto with keys for the raw data of some tensors, `raw_data` the content by key.

    Keys have random bytes, so that no file can have one of them in it.
    """

    message: bytes
    raw_data: Mapping[bytes, NDArray[np.uint8]]


class _Irregular(Exception):  # an answer, not an error
    """The content is cut off, or has what this module does not read."""


def read_parts(file: BinaryIO, size: int, mapped: MappedFile | None = None) -> Parts | None:
    """The parts of a file of `size` bytes, from its begin; None for content that is cut off or has groups: protobuf may judge.

    Raw data that is not a region of the `mapped` file, because that is None or the data small, is in one array, which is as large
    as the file; parts that are not written take no memory.
    """
    reader = _Reader(file, np.empty(size + size // LARGE * _ALIGNMENT + _ALIGNMENT, np.uint8), mapped)
    try:
        message = reader.message(None, {_MAIN: reader.graph})
    except _Irregular:
        return None
    return Parts(bytes(message), reader.raw_data)


class _Reader:
    """Copies messages field by field. `at` is the place in the file."""

    def __init__(self, file: BinaryIO, room: NDArray[np.uint8], mapped: MappedFile | None) -> None:
        self._file, self._mapped = file, mapped
        self._room = room[-room.ctypes.data % _ALIGNMENT :]
        self._secret = os.urandom(KEY_BYTES - 8)
        self.at = self._depth = 0
        self.raw_data: dict[bytes, NDArray[np.uint8]] = {}

    def message(self, length: int | None, cuts: Mapping[int, Cut], lists: Container[int] = ()) -> bytearray:
        """A message of `length` bytes (None: up to the end of the file) with the fields in `cuts` (by their tags) changed.

        From the first field in `lists` on the message is copied as it is.
        """
        end = None if length is None else self.at + length
        out = bytearray()
        while end is None or self.at < end:
            tag, written = self._varint(at_end=end is None)
            if not written:
                break
            out += written
            if end is not None and tag in lists:
                out += self._take(max(0, end - self.at))
            elif tag & 7 == _LENGTH_DELIMITED:
                self._copy(out, cuts.get(tag), end)
            elif tag & 7 == _VARINT:
                out += self._varint()[1]
            elif tag & 7 in (_FIXED64, _FIXED32):
                out += self._take(8 if tag & 7 == _FIXED64 else 4)
            else:
                raise _Irregular
        if end is not None and self.at != end:
            raise _Irregular
        return out

    def graph(self, length: int) -> bytes | bytearray:
        """A GraphProto."""
        if length < LARGE or self._depth == _DEPTH:
            return self._take(length)
        self._depth += 1
        found = self.message(length, {_INITIALIZER: self._tensor, _NODE: self._node})
        self._depth -= 1
        return found

    def _node(self, length: int) -> bytes | bytearray:
        return self._take(length) if length < LARGE else self.message(length, {_ATTRIBUTE: self._attribute})

    def _attribute(self, length: int) -> bytes | bytearray:
        return self._take(length) if length < LARGE else self.message(length, {_TENSOR: self._tensor, _GRAPH: self.graph}, _LISTS)

    def _tensor(self, length: int) -> bytes | bytearray:
        return self._take(length) if length < LARGE else self.message(length, {_RAW_DATA: self._raw_data})

    def _raw_data(self, length: int) -> bytes:
        if length < LARGE:
            return self._take(length)
        if self._mapped is not None and length >= SMALLEST_REGION:
            if self.at + length > self._mapped.content.nbytes:
                raise _Irregular
            array = self._mapped.region(self.at, length)
            self._file.seek(length, os.SEEK_CUR)
        else:
            array, self._room = self._room[:length], self._room[-(-length // _ALIGNMENT) * _ALIGNMENT :]
            self._read_into(array.data)
        self.at += length
        key = self._secret + len(self.raw_data).to_bytes(8, "little")
        self.raw_data[key] = array
        return key

    def _read_into(self, view: memoryview) -> None:
        if self._file.readinto(view) != len(view):  # type: ignore[attr-defined]  # buffered files and BytesIO have it
            raise _Irregular

    def _copy(self, out: bytearray, cut: Cut | None, end: int | None) -> None:
        length, written = self._varint()
        if end is not None and self.at + length > end:
            raise _Irregular
        content = self._take(length) if cut is None else cut(length)
        out += written if len(content) == length else _encoded(len(content))
        out += content

    def _take(self, length: int) -> bytes:
        content = self._file.read(length)
        self.at += length
        if len(content) != length:
            raise _Irregular
        return content

    def _varint(self, at_end: bool = False) -> tuple[int, bytes]:
        """A number and its bytes; none at the end of the file, where that may be."""
        read = self._file.read
        written = read(1)
        self.at += 1
        if written and written[0] < 0x80:
            return written[0], written
        if not written and at_end:
            return 0, b""
        if not written:
            raise _Irregular
        value, shift = written[0] & 0x7F, 7
        while written[-1] >= 0x80:
            one = read(1)
            self.at += 1
            if not one or shift > 63:
                raise _Irregular
            written += one
            value |= (one[0] & 0x7F) << shift
            shift += 7
        return value, written


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
