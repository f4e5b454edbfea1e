"""A model file in two parts: a message small enough to be parsed, and the bytes of large tensors, each read once.

Tensors are the initializers of the main graph and the attributes of its nodes: some exporters write all weights as Constant.

Protobuf would copy them into the message, and hand out one more copy. The largest ones of a file are `FileRegion`s, as external
data is: a device that copies them can give their memory back.
"""

import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail_frontend_onnx.context import KEY_BYTES
from dovetail_frontend_onnx.file_region import FileRegion, is_reloadable
from dovetail_frontend_onnx.messages import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

__all__ = ["LARGE", "Parts", "read_parts"]

LARGE = 4096
"""Bytes from which on the raw data of a tensor is kept apart."""
_ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector of current CPUs."""

_SHARED = 1 << 22
"""Bytes of regions from which on two threads read them; to start the second one takes 0.1 ms."""
_PIECE = 1 << 23
"""Bytes that a thread reads at once, so that both end at about the same time."""
_ROOM = 32 << 20
"""Bytes that must be free for it: Python waits for ever for a thread that finds no memory when it begins."""

_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_GRAPH, _INITIALIZER, _NODE, _ATTRIBUTE, _TENSOR, _RAW_DATA = (
    number << 3 | _LENGTH_DELIMITED
    for number in (
        ModelProto.GRAPH_FIELD_NUMBER,
        GraphProto.INITIALIZER_FIELD_NUMBER,
        GraphProto.NODE_FIELD_NUMBER,
        NodeProto.ATTRIBUTE_FIELD_NUMBER,
        AttributeProto.T_FIELD_NUMBER,
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


def read_parts(file: BinaryIO, size: int, path: Path | None = None) -> Parts | None:
    """The parts of a file of `size` bytes, from its begin; None for content that is cut off or has groups: protobuf may judge.

    Raw data that is not a `FileRegion`, as none is without the `path` of the file, is in one array, which is as large as the
    file; parts that are not written take no memory.
    """
    reader = _Reader(file, np.empty(size + size // LARGE * _ALIGNMENT + _ALIGNMENT, np.uint8), path)
    try:
        message = reader.message(None, {_GRAPH: reader.graph})
        reader.read_regions()
    except _Irregular:
        return None
    return Parts(bytes(message), reader.raw_data)


class _Reader:
    """Copies messages field by field. `at` is the place in the file."""

    def __init__(self, file: BinaryIO, room: NDArray[np.uint8], path: Path | None) -> None:
        self._file = file
        # Without links, which may lead elsewhere later.
        self._path = None if path is None else Path(os.path.realpath(path))
        self._room = room[-room.ctypes.data % _ALIGNMENT :]
        self._secret = os.urandom(KEY_BYTES - 8)
        self.at = 0
        self.raw_data: dict[bytes, NDArray[np.uint8]] = {}
        self._regions = deque[tuple[int, memoryview]]()

    def read_regions(self) -> None:
        """Fill all regions: mostly the system's copying and clearing of pages, in calls without Python's lock."""
        failed: list[Exception] = []
        threads = []
        if sum(len(view) for _, view in self._regions) >= _SHARED:
            with suppress(MemoryError, OSError, RuntimeError):  # too little memory, or too many threads
                mmap.mmap(-1, _ROOM).close()
                second = threading.Thread(target=self._read_waiting, args=(failed,), name="dovetail-onnx", daemon=True)
                second.start()
                threads.append(second)
        self._read_waiting(failed)
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]

    def _read_waiting(self, failed: list[Exception]) -> None:
        descriptor = self._file.fileno() if self._regions else -1
        while not failed:
            try:
                at, view = self._regions.popleft()
            except IndexError:
                return
            try:
                while view:
                    count = os.preadv(descriptor, [view], at)
                    if not count:
                        raise _Irregular
                    at, view = at + count, view[count:]
            except Exception as error:
                failed.append(error)

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

    def graph(self, length: int) -> bytearray:
        """A GraphProto."""
        return self.message(length, {_INITIALIZER: self._tensor, _NODE: self._node})

    def _node(self, length: int) -> bytes | bytearray:
        return self._take(length) if length < LARGE else self.message(length, {_ATTRIBUTE: self._attribute})

    def _attribute(self, length: int) -> bytes | bytearray:
        return self._take(length) if length < LARGE else self.message(length, {_TENSOR: self._tensor}, _LISTS)

    def _tensor(self, length: int) -> bytes | bytearray:
        return self._take(length) if length < LARGE else self.message(length, {_RAW_DATA: self._raw_data})

    def _raw_data(self, length: int) -> bytes:
        if length < LARGE:
            return self._take(length)
        if self._path is not None and is_reloadable(length):
            status = os.fstat(self._file.fileno())
            if self.at + length > status.st_size:  # before memory is taken for it
                raise _Irregular
            array = np.asarray(FileRegion(self._path, status, self.at, length, self._read_later))
        else:
            array, self._room = self._room[:length], self._room[-(-length // _ALIGNMENT) * _ALIGNMENT :]
            self._read_into(array.data)
        self.at += length
        key = self._secret + len(self.raw_data).to_bytes(8, "little")
        self.raw_data[key] = array
        return key

    def _read_later(self, view: memoryview) -> None:
        pieces = range(0, len(view), _PIECE)
        self._regions.extend((self.at + start, view[start : start + _PIECE]) for start in pieces)
        self._file.seek(self.at + len(view))

    def _read_into(self, view: memoryview) -> None:
        if self._file.readinto(view) != len(view):  # type: ignore[attr-defined]  # buffered files and BytesIO have it
            raise _Irregular

    def _copy(self, out: bytearray, cut: Cut | None, end: int | None) -> None:
        length, written = self._varint()
        if end is not None and self.at + length > end:
            raise _Irregular
        if cut is None:
            out += written
            out += self._take(length)
        else:
            content = cut(length)
            out += _encoded(len(content))
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
        if not written and at_end:
            return 0, b""
        if not written:
            raise _Irregular
        if written[0] < 0x80:
            return written[0], written
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
