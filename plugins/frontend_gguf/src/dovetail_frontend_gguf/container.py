"""The container: metadata and the places of tensors. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md"""

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.frontend import FormatError, ModelSource, printable
from dovetail_frontend_gguf.formats import FORMATS, Format

__all__ = ["Container", "Tensor", "open_container", "release"]

Bytes = NDArray[np.uint8]

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_FOREIGN = (
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x89PNG", "a PNG image"),
    (b"version https://git-lfs", "a Git-LFS pointer, not the file itself (run: git lfs pull)"),
    (b"ggjt", "a GGML file of a version before GGUF"),
    (b"<", "an XML or HTML file"),
)

_NUMBERS: Mapping[int, tuple[str, str]] = {
    0: ("<B", "uint8"),
    1: ("<b", "int8"),
    2: ("<H", "uint16"),
    3: ("<h", "int16"),
    4: ("<I", "uint32"),
    5: ("<i", "int32"),
    6: ("<f", "float32"),
    7: ("<?", "bool"),
    10: ("<Q", "uint64"),
    11: ("<q", "int64"),
    12: ("<d", "float64"),
}
_STRING, _ARRAY = 8, 9
_MOST_DIMS = 4
_NESTING = 4
"""Arrays in arrays; writers make none."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of the file: `dims` the innermost first, as the format has them; `data` its bytes [rows, bytes of a row]."""

    name: str
    format: Format
    dims: tuple[int, ...]
    data: Bytes

    @property
    def columns(self) -> int:
        """The elements of a row."""
        return self.dims[0]


@dataclass(frozen=True)
class Container:
    """The metadata by key, and the tensors by name."""

    source: str
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def open_container(source: ModelSource) -> Container:
    """Read what the file says; tensors stay where they are: a file on disk is mapped. Raises `FormatError`."""
    try:
        return _Reader(_mapped(source)).container(source.name)
    except FormatError as error:
        if not error.message.startswith(source.name):
            error.message = f"{source.name}: {error.message}"
        raise


def _mapped(source: ModelSource) -> Bytes:
    if isinstance(source.data, bytes):
        return np.frombuffer(source.read(2**63 - 1), np.uint8)
    with source.open(2**63 - 1) as (file, _):
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def release(data: Bytes) -> None:
    """Let the system reclaim the memory of a part of a mapped file, which is read again when it is needed; else do nothing."""
    owner: Any = data
    while isinstance(owner, np.ndarray):
        owner = owner.base
    mapped = getattr(owner, "obj", None)
    if not isinstance(mapped, mmap.mmap) or not hasattr(mapped, "madvise"):  # Windows has no madvise
        return
    start = data.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
    first, end = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, (start + data.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if first < end:
        mapped.madvise(mmap.MADV_DONTNEED, first, end - first)


class _Reader:
    """Reads from the front; every length is compared with what is left of the file before it is used."""

    def __init__(self, content: Bytes) -> None:
        self._content = content
        self._view = memoryview(content.data)
        self._at = 0

    def container(self, source: str) -> Container:
        """The whole file."""
        self._check_magic()
        version = self._number("<I")
        if version not in _VERSIONS:
            hint = "the file may be of a machine with another order of bytes" if version & 0xFFFF == 0 else ""
            raise FormatError(f"this is GGUF of version {version}; accepted: {', '.join(map(str, _VERSIONS))}", hint=hint)
        count, pairs = self._count("tensors", 24), self._count("metadata", 12)
        metadata: dict[str, Any] = {}
        for _ in range(pairs):
            key = self._string("a key")
            if key in metadata:
                raise FormatError(f"the key '{printable(key)}' is there twice")
            metadata[key] = self._value(self._number("<I"), key, 0)
        declared = [self._declared() for _ in range(count)]
        found = Container(source, metadata, self._placed(declared, metadata))
        release(self._content[: self._at])
        return found

    def _check_magic(self) -> None:
        start = bytes(self._view[:32])
        if start[:4] != _MAGIC:
            what = next((text for signature, text in _FOREIGN if start.startswith(signature)), f"it begins with {start[:4]!r}")
            raise FormatError(f"this is not a .gguf file: {what}", hint="accepted: a file that begins with b'GGUF'")
        self._at = 4

    def _take(self, size: int, what: str) -> memoryview:
        if size > len(self._view) - self._at:
            raise FormatError(
                f"the file ends in {what}: {size} bytes from byte {self._at} on, of {len(self._view)}",
                hint="was the download interrupted?",
            )
        self._at += size
        return self._view[self._at - size : self._at]

    def _number(self, code: str, what: str = "a number") -> Any:
        return struct.unpack(code, self._take(struct.calcsize(code), what))[0]

    def _count(self, what: str, least: int) -> int:
        """A number of things that have at least so many bytes each."""
        count = int(self._number("<Q"))
        if count > (len(self._view) - self._at) // least:
            raise FormatError(f"the file declares {count} {what}, more than its {len(self._view)} bytes can hold")
        return count

    def _string(self, what: str) -> str:
        size = int(self._number("<Q", what))
        content = bytes(self._take(size, what))
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise FormatError(f"{what} at byte {self._at - size} is not UTF-8: {content[:40]!r}") from None

    def _value(self, kind: int, key: str, depth: int) -> Any:
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind][0], f"the value of '{printable(key)}'")
        if kind == _STRING:
            return self._string(f"the value of '{printable(key)}'")
        if kind != _ARRAY or depth >= _NESTING:
            raise FormatError(f"the value of '{printable(key)}' is of type {kind}; accepted: 0 to 12, arrays {_NESTING} deep")
        items = self._number("<I", f"the value of '{printable(key)}'")
        if items in _NUMBERS:
            dtype = np.dtype(_NUMBERS[items][1]).newbyteorder("<")
            count = self._count(f"values of '{printable(key)}'", dtype.itemsize)
            return np.frombuffer(self._take(count * dtype.itemsize, f"the value of '{printable(key)}'"), dtype).tolist()
        count = self._count(f"values of '{printable(key)}'", 8)
        return [self._value(items, key, depth + 1) for _ in range(count)]

    def _declared(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, dimensions, format and offset of a tensor."""
        name = self._string("the name of a tensor")
        rank = int(self._number("<I"))
        if not 1 <= rank <= _MOST_DIMS:
            raise FormatError(f"tensor '{printable(name)}' has {rank} dimensions; accepted: 1 to {_MOST_DIMS}")
        dims = tuple(int(self._number("<Q")) for _ in range(rank))
        return name, dims, int(self._number("<I")), int(self._number("<Q"))

    def _placed(self, declared: list[tuple[str, tuple[int, ...], int, int]], metadata: Mapping[str, Any]) -> dict[str, Tensor]:
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 1 <= alignment <= 2**20 or alignment & (alignment - 1):
            raise FormatError(f"general.alignment is {alignment!r}; accepted: a power of two up to {2**20}")
        start = -(-self._at // alignment) * alignment
        found: dict[str, Tensor] = {}
        for name, dims, code, offset in declared:
            shown = f"tensor '{printable(name)}'"
            if name in found:
                raise FormatError(f"{shown} is there twice")
            kind = FORMATS.get(code)
            if kind is None:
                accepted = ", ".join(known.name for known in FORMATS.values())
                raise FormatError(f"{shown} is of the type {code}; accepted: {accepted}", hint="quantize it otherwise")
            if not dims[0] or dims[0] % kind.elements or any(d > 2**40 for d in dims):
                raise FormatError(f"{shown} has dimensions {list(dims)}; {kind.name} has blocks of {kind.elements} in a row")
            rows, width = math.prod(dims[1:]), dims[0] // kind.elements * kind.nbytes
            if offset % alignment or start + offset + rows * width > len(self._view):
                raise FormatError(
                    f"{shown}: {rows * width} bytes from byte {start + offset} on, of {len(self._view)}; accepted: inside of "
                    f"the file, from a multiple of {alignment} on",
                    hint="was the download interrupted?",
                )
            place = self._content[start + offset : start + offset + rows * width]
            found[name] = Tensor(name, kind, dims, place.reshape(rows, width))
        return found
