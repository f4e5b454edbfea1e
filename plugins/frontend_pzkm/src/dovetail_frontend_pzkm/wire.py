"""Flatbuffers to and from the dataclasses of `schema`.

The Python library builds what is written. It reads by following offsets without a look at where they lead, so reading is done
here: every offset is checked first, that of a vtable, of a field, of a string, of a vector and of each of its elements. A file
cannot make the reader visit more bytes than a few times its own, so that tables which many offsets share do not multiply.
"""

import struct
from typing import Any, TypeVar

import numpy as np
from flatbuffers import Builder
from flatbuffers import number_types as numbers

from dovetail.frontend import FormatError, UsageError
from dovetail_frontend_pzkm.schema import IDENTIFIER, Kind, Slot, slots

__all__ = ["MAX_TABLES", "read_tables", "write_tables"]

MAX_TABLES = 50_000
"""Tables in a file, which are read in about a second: a convolution with its tensors takes 25."""

MAX_NUMBERS = 100_000
"""Elements of a vector of numbers: dimensions, or the ids of inputs and outputs. In Python each takes nine times its bytes."""

MAX_TEXT = 2**24
"""Bytes of all names and texts. In Python a character takes up to four times its bytes."""

_SHARED = 4
_SLACK = 4096
_FLAGS: dict[Kind, Any] = {
    Kind.U8: numbers.Uint8Flags,
    Kind.I8: numbers.Int8Flags,
    Kind.BOOL: numbers.BoolFlags,
    Kind.U32: numbers.Uint32Flags,
    Kind.U64: numbers.Uint64Flags,
}
_SCALARS = {kind: struct.Struct(f"<{kind.value}") for kind in _FLAGS}
_SIGNED, _SIZES = struct.Struct("<i"), struct.Struct("<HH")
_OFFSET = 4
_SLOTS: dict[type, tuple[Slot, ...]] = {}
_T = TypeVar("_T")


def _slots(table: type) -> tuple[Slot, ...]:
    if table not in _SLOTS:
        _SLOTS[table] = slots(table)
    return _SLOTS[table]


def read_tables(content: bytes, root: type[_T]) -> _T:
    """The root table of a flatbuffer as an instance of `root`. Raises `FormatError` naming the field that leads astray."""
    reader = _Reader(content)
    reader.inside(0, _OFFSET, "the file's root offset")
    made: _T = reader.table(reader.offset(0), root)
    return made


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.view = memoryview(content)
        self.left = _SHARED * len(content) + _SLACK
        self.text = MAX_TEXT
        self.tables = 0

    def inside(self, start: int, length: int, what: str) -> None:
        if start < 0 or start + length > len(self.content):
            raise FormatError(
                f"{what} lies at bytes {start} to {start + length} of {len(self.content)}",
                hint="the file is damaged or cut off, or it is not a .pzkm file",
            )

    def spend(self, length: int) -> None:
        self.left -= length
        if self.left < 0:
            raise FormatError("its parts overlap: together they are more than four times the file", hint="the file is damaged")

    def offset(self, position: int) -> int:
        self.inside(position, _OFFSET, "an offset")
        return position + int.from_bytes(self.view[position : position + _OFFSET], "little")

    def table(self, position: int, cls: type) -> Any:
        """The table at `position`."""
        self.tables += 1
        if self.tables > MAX_TABLES:
            raise FormatError(f"the file has more than {MAX_TABLES} tables", hint="split the model")
        self.inside(position, _OFFSET, "a table")
        vtable = position - _SIGNED.unpack_from(self.content, position)[0]
        self.inside(vtable, 4, "a vtable")
        vtable_size, size = _SIZES.unpack_from(self.content, vtable)
        if vtable_size < 4 or vtable_size % 2 or size < _OFFSET:
            raise FormatError(
                f"the vtable at byte {vtable} has sizes {vtable_size} and {size}",
                hint="the file is damaged, or it is not a .pzkm file",
            )
        self.inside(vtable, vtable_size, "a vtable")
        self.inside(position, size, "a table")
        self.spend(size)
        values = {}
        places = struct.unpack_from(f"<{vtable_size // 2 - 2}H", self.content, vtable + 4)
        for slot, relative in zip(_slots(cls), places, strict=False):  # files of other versions have fewer or more fields
            if relative:
                try:
                    values[slot.name] = self._value(position, relative, size, slot)
                except FormatError as error:
                    raise _within(slot.name, error) from None
        return cls(**values)

    def _value(self, table: int, relative: int, size: int, slot: Slot) -> Any:
        scalar = _SCALARS.get(slot.kind)
        width = scalar.size if scalar else _OFFSET
        if relative < _OFFSET or relative + width > size:
            raise FormatError(f"the field lies at bytes {relative} to {relative + width} of its table of {size}")
        if scalar:
            return scalar.unpack_from(self.content, table + relative)[0]
        target = self.offset(table + relative)
        if slot.kind is Kind.TABLE:
            assert slot.table
            return self.table(target, slot.table)
        return self._vector(target, slot)

    def _vector(self, position: int, slot: Slot) -> Any:
        self.inside(position, _OFFSET, "a vector")
        count = int.from_bytes(self.view[position : position + _OFFSET], "little")
        start = position + _OFFSET
        length = count * (1 if slot.kind in (Kind.STRING, Kind.BYTES) else 4)
        self.inside(start, length, f"a vector of {count}")
        self.spend(_OFFSET + length)
        if slot.kind is Kind.BYTES:
            return self.view[start : start + length]
        if slot.kind is Kind.STRING:
            self.text -= length
            if self.text < 0:
                raise FormatError(f"the names and texts of the file have more than {MAX_TEXT} bytes")
            return _text(self.content[start : start + length])
        if slot.kind is Kind.U32S:
            if count > MAX_NUMBERS:
                raise FormatError(f"there are {count} numbers; accepted: at most {MAX_NUMBERS}")
            return struct.unpack_from(f"<{count}I", self.content, start)
        return self._tables(start, count, slot)

    def _tables(self, start: int, count: int, slot: Slot) -> tuple[Any, ...]:
        assert slot.table
        found = []
        for index in range(count):
            try:
                found.append(self.table(self.offset(start + 4 * index), slot.table))
            except FormatError as error:
                raise _within(f"[{index}]", error) from None
        return tuple(found)


def _text(stored: bytes) -> str:
    try:
        return stored.decode("utf-8")
    except UnicodeDecodeError:
        raise FormatError("the text is not UTF-8") from None


def _within(part: str, error: FormatError) -> FormatError:
    """`error` with the path of fields in front: `layer_buffer[3].name: ...`."""
    path, colon, rest = error.message.partition(": ")
    is_path = bool(colon) and " " not in path
    joined = path if is_path and path.startswith("[") else f".{path}" if is_path else ""
    return FormatError(f"{part}{joined}: {rest if is_path else error.message}", hint=error.hint)


def write_tables(root: Any, identifier: bool = True) -> bytes:
    """The flatbuffer of a root table, with the identifier or without."""
    tables = _count(root)
    if tables > MAX_TABLES:
        raise FormatError(f"the model needs {tables} tables; accepted: at most {MAX_TABLES}", hint="split the model")
    builder = Builder(1024)
    try:
        builder.Finish(_write(builder, root), file_identifier=IDENTIFIER if identifier else None)
    except Exception as error:
        if type(error).__name__ != "BuilderSizeError":
            raise
        raise UsageError("the model is larger than the 2 GB that a .pzkm file holds") from None
    return bytes(builder.Output())


def _count(table: Any) -> int:
    values = [(slot.kind, getattr(table, slot.name)) for slot in _slots(type(table))]
    single = sum(_count(value) for kind, value in values if kind is Kind.TABLE and value is not None)
    return 1 + single + sum(_count(item) for kind, value in values if kind is Kind.TABLES for item in value)


def _write(builder: Builder, table: Any) -> int:
    fields = _slots(type(table))
    values = [getattr(table, slot.name) for slot in fields]
    # What a table refers to is written before the table itself.
    stored = [v if slot.kind.is_scalar else _write_target(builder, v, slot) for v, slot in zip(values, fields, strict=True)]
    builder.StartObject(len(fields))
    for index, (slot, value) in enumerate(zip(fields, stored, strict=True)):
        if slot.kind.is_scalar:
            builder.PrependSlot(_FLAGS[slot.kind], index, value, slot.default)
        elif value:
            builder.PrependUOffsetTRelativeSlot(index, value, 0)
    return int(builder.EndObject())


def _write_target(builder: Builder, value: Any, slot: Slot) -> int:
    """Where the value was put; 0 for what is left out."""
    if value is None:
        return 0
    if slot.kind is Kind.TABLE:
        return _write(builder, value)
    if slot.kind is Kind.STRING:
        return int(builder.CreateString(value))
    if slot.kind is Kind.BYTES:
        return int(builder.CreateByteVector(bytes(value)))
    if slot.kind is Kind.U32S:
        return int(builder.CreateNumpyVector(np.array(value, np.uint32)))
    offsets = [_write(builder, item) for item in value]
    builder.StartVector(_OFFSET, len(offsets), _OFFSET)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())
