"""Plans as bytes: graphs, operators and types as JSON, then their arrays, aligned, those left out that other files have.

Reading them executes nothing of a file.

An object is the name of its class and the values of its fields. Only data classes, operators and enumerations are written and
made, and only those of dovetail and of installed plugins.
"""

import dataclasses
import importlib
import json
import math
import sys
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import fields_of
from dovetail.errors import UsageError, raised_by_handler
from dovetail.graph.dtype import DType
from dovetail.graph.graph import AbstractOperator, Node
from dovetail.graph.mapped_file import SMALLEST_REGION
from dovetail.graph.reloadable import let_go
from dovetail.names import printable
from dovetail.planning.field_types import wrong_field

__all__ = ["PLAN_MAGIC", "Damaged", "header_of", "packed", "unpacked"]

PLAN_MAGIC = b"dovetail-plans-2\n"
_HEAD = len(PLAN_MAGIC) + 4 + 8
_ALIGNMENT = 64
_WORDS = 1 << 64
_PLAIN = (bool, int, float, str)

Region = Callable[[int, int], NDArray[np.uint8]]
"""Bytes of a file from an offset on, as many as are asked for and there."""

Place = tuple[int, int]
"""The number of another file that has an array, and the byte at which it begins there."""


class Damaged(Exception):
    """The content is not what `packed` writes; the message says why."""


def packed(
    made_for: Mapping[str, Any],
    content: Any,
    packages: Collection[str],
    elsewhere: Callable[[NDArray[Any]], Place | None] = lambda _: None,
) -> Iterator[bytes | memoryview]:
    """The bytes of a file: `made_for`, plain values that can be read alone, and `content`, whose classes belong to `packages`.

    Arrays that are `elsewhere` are only referred to.

    Raises `UsageError` naming the node whose operator cannot be written.
    """
    packer = _Packer(packages)
    root = packer.value(content)
    places, written, end, total = [], [], 0, 0
    for array in packer.arrays:
        place, kind = elsewhere(array), (DType.of(array.dtype).value, array.shape)
        if place is not None:
            places.append([*kind, *place])
            continue
        end = -(-end // _ALIGNMENT) * _ALIGNMENT
        places.append([*kind, 0, end])
        written.append((array, end))
        end, total = end + array.nbytes, total + _total(_bytes(array))
    classes = [[cls.__module__, cls.__qualname__] for cls in packer.classes]
    whole = {"made_for": made_for, "classes": classes, "objects": packer.objects, "arrays": places, "root": root}
    whole |= {"bytes": end, "total": total % _WORDS}
    text = json.dumps(whole, separators=(",", ":")).encode()
    yield PLAN_MAGIC + _checksum(text) + len(text).to_bytes(8, "little") + text
    yield bytes(-(_HEAD + len(text)) % _ALIGNMENT)
    end = 0
    for array, start in written:
        yield bytes(start - end)
        yield _bytes(array).data
        end = start + array.nbytes


def header_of(content: NDArray[np.uint8]) -> tuple[Mapping[str, Any], int]:
    """All but the arrays of a file, and where these begin. Raises `Damaged`."""
    head = content[:_HEAD].tobytes()
    if not head.startswith(PLAN_MAGIC):
        raise Damaged("it was not written by export_model")
    length = int.from_bytes(head[-8:], "little")
    text = content[_HEAD : _HEAD + length].tobytes()
    if _checksum(text) != head[len(PLAN_MAGIC) : -8]:
        raise Damaged("it is damaged or truncated")
    try:
        found = json.loads(text)
        start = -(-(_HEAD + length) // _ALIGNMENT) * _ALIGNMENT
        if start + found["bytes"] != content.size or not isinstance(found["made_for"], dict):
            raise Damaged("it is truncated, or bytes were appended")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damaged(f"its header is malformed: {error!r:.200}") from None
    return found, start


def _checksum(text: bytes) -> bytes:
    return zlib.crc32(text).to_bytes(4, "little")


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _total(memory: NDArray[np.uint8]) -> int:
    """The sum of words of 64 bits, the last one filled up with zeros: for 100 MB it takes 7 ms, CRC-32 49."""
    whole = memory.size // 8 * 8
    return int(np.add.reduce(memory[:whole].view("<u8"))) + int.from_bytes(memory[whole:].tobytes(), "little")


def unpacked(
    header: Mapping[str, Any], regions: Sequence[Region], start: int, packages: Collection[str], *, is_trusted: bool = False
) -> Any:
    """The content of a file whose arrays begin at `start`; large ones stay in the file.

    `regions` are those of the file and of the others that it refers to. Raises `Damaged`, also for an array of the file that has
    changed and, unless it `is_trusted`, for an object with a field of another type.
    """
    try:
        memory = regions[0](start, header["bytes"])
        if _total(memory) % _WORDS != header["total"]:
            raise Damaged("an array in it is damaged")
        let_go(memory)
        arrays = [_array(regions, start, *place) for place in header["arrays"]]
        classes = [_class(module, name, packages) for module, name in header["classes"]]
        return _objects(header["objects"], classes, arrays, is_trusted)(header["root"])
    except Damaged:
        raise
    except Exception as error:  # constructors of operators raise what they like
        if raised_by_handler(error):
            raise
        raise Damaged(f"its content is malformed: {type(error).__name__}: {error!s:.200}") from error


class _Packer:
    """Numbers the objects, classes and arrays of a value. Each object is written once, after those in it."""

    def __init__(self, packages: Collection[str]) -> None:
        self._packages = packages
        self.arrays: list[NDArray[Any]] = []
        self.classes: dict[type, int] = {}
        self.objects: list[Any] = []
        self._numbers: dict[int, tuple[int, Any]] = {}  # with the objects, so that no other gets their identity
        self._node: Node | None = None

    def value(self, given: Any) -> Any:
        """The value in JSON: itself, a list for a tuple, or the number of an object."""
        kind = type(given)
        if given is None or kind in _PLAIN:
            return given
        if kind is tuple:
            return [self.value(one) for one in given]
        known = self._numbers.get(id(given))
        if known is None:
            self.objects.append(self._content(given, kind))
            known = self._numbers[id(given)] = len(self.objects) - 1, given
        return {"": known[0]}

    def _content(self, given: Any, kind: type) -> list[Any]:
        if isinstance(given, np.generic):
            return ["scalar", self.value(np.asarray(given))]
        if isinstance(given, np.ndarray):
            if given.dtype.kind == "O":
                return ["text", given.shape, [self._text(one) for one in given.flat]]
            self.arrays.append(given)
            return ["array", len(self.arrays) - 1]
        if kind in (dict, MappingProxyType):
            return ["mapping", *([self.value(key), self.value(one)] for key, one in given.items())]
        if kind in (list, frozenset):
            return [kind.__name__, *map(self.value, given)]
        if isinstance(given, Enum):
            return ["enum", self._class(kind), given.name]
        if (names := _fields(kind)) is None:
            raise self._refused(f"holds a {kind.__qualname__}")
        if isinstance(given, Node):
            self._node = given
        return [self._class(kind), *[self.value(getattr(given, name)) for name in names]]

    def _text(self, given: object) -> str:
        if type(given) is not str:
            raise self._refused(f"holds an array with a {type(given).__qualname__}")
        return given

    def _class(self, kind: type) -> int:
        number = self.classes.get(kind)
        if number is None:
            if getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is not kind or not _is_of(kind, self._packages):
                raise self._refused(f"has the class {kind.__module__}.{kind.__qualname__}, which is in no installed plugin")
            number = self.classes[kind] = len(self.classes)
        return number

    def _refused(self, what: str) -> UsageError:
        node = "the model" if self._node is None else f"node {self._node}"
        return UsageError(f"{node} {what}: it cannot be written into a file", hint="compile the model in each process")


def _fields(kind: type) -> tuple[str, ...] | None:
    """The arguments of a data class or operator; None for another class."""
    if hasattr(kind, "__declared__"):
        return tuple([name for name, one in fields_of(kind).items() if one.init])
    if dataclasses.is_dataclass(kind):
        return tuple([one.name for one in dataclasses.fields(kind) if one.init])
    return () if issubclass(kind, AbstractOperator) else None


def _is_of(kind: type, packages: Collection[str]) -> bool:
    return kind.__module__.partition(".")[0] in packages


def _class(module: str, name: str, packages: Collection[str]) -> type:
    parts = module.split(".")
    if parts[0] not in packages or not all(map(str.isidentifier, parts)) or parts[-1] == "__main__":
        raise Damaged(f"it needs the module '{printable(module)}', which is in no installed plugin")
    found: Any = getattr(importlib.import_module(module), name, None)
    is_data = isinstance(found, type) and (issubclass(found, Enum) or _fields(found) is not None)
    if not is_data or (found.__module__, found.__qualname__) != (module, name):
        raise Damaged(f"it needs the class '{printable(f'{module}.{name}')}', which is not there")
    cls: type = found
    return cls


def _array(regions: Sequence[Region], start: int, name: str, shape: Sequence[int], file: int, offset: int) -> NDArray[Any]:
    dtype = DType(name).numpy
    nbytes = math.prod(shape) * dtype.itemsize
    if min([*shape, offset, file]) < 0 or file >= len(regions) or (not file and offset % _ALIGNMENT):
        raise Damaged("an array is outside of it")
    memory = regions[file](offset if file else start + offset, nbytes)
    if memory.size != nbytes:
        raise Damaged("an array is outside of it")
    found: NDArray[Any] = (memory if nbytes >= SMALLEST_REGION else memory.copy()).view(dtype).reshape(shape)
    found.flags.writeable = False
    return found


def _objects(entries: Sequence[Sequence[Any]], classes: Sequence[Any], arrays: Sequence[NDArray[Any]], is_trusted: bool) -> Any:
    """Makes all objects in their order; returns the function that gives a value for one in JSON."""
    objects: list[Any] = []
    names = [_fields(cls) or () for cls in classes]

    def value(given: Any) -> Any:
        kind = type(given)
        if kind is list:
            return tuple([value(one) for one in given])
        return objects[given[""]] if kind is dict else given

    for tag, *content in entries:
        if type(tag) is int:
            objects.append(classes[tag](**dict(zip(names[tag], map(value, content), strict=True))))
            if not is_trusted and (wrong := wrong_field(objects[-1], names[tag])):
                raise Damaged(wrong)
        elif tag == "array":
            objects.append(arrays[content[0]])
        elif tag == "enum":
            objects.append(classes[content[0]][content[1]])
        elif tag == "mapping":
            objects.append({value(key): value(one) for key, one in content})
        elif tag == "text":
            objects.append(_texts(*content))
        else:
            objects.append(_COLLECTIONS[tag](map(value, content)))
    return value


_COLLECTIONS: Mapping[str, Callable[[Iterator[Any]], Any]] = {
    "list": list,
    "frozenset": frozenset,
    "scalar": lambda arrays: next(arrays)[()],
}


def _texts(shape: Sequence[int], texts: Sequence[str]) -> NDArray[Any]:
    found = np.empty(len(texts), object)
    found[:] = texts
    if set(map(type, texts)) - {str}:
        raise Damaged("an array of texts has something else")
    found = found.reshape(shape)
    found.flags.writeable = False
    return found
