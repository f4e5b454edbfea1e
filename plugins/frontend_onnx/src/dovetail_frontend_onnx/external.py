"""External data: tensors whose bytes are in files beside the model (`TensorProto.external_data`, ONNX's ExternalData.md)."""

import io
import os
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.frontend import SMALLEST_REGION, FormatError, MappedFile, ModelSource, OutOfMemory, printable
from dovetail_frontend_onnx.messages import TensorProto

__all__ = ["ExternalData"]

_KEYS = ("location", "offset", "length")
"""The keys that say where the bytes are. Others (`checksum`, ONNX Runtime's `prepacked_*`) are ignored, as the standard does."""

_MAX_DIGITS = 19


@dataclass
class ExternalData:
    """The data files of one model. Each is opened once, checked once, and closed by `close`. Large regions are mapped."""

    source: ModelSource
    _files: dict[str, io.FileIO] = field(default_factory=dict)
    _mapped: dict[str, MappedFile | None] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)
    _unread: dict[str, int] = field(default_factory=dict)
    _regions: dict[tuple[str, int, int], NDArray[np.uint8]] = field(default_factory=dict)

    def read(self, tensor: TensorProto, expected: int) -> NDArray[np.uint8]:
        """The tensor's `expected` bytes, read-only. Tensors that name the same region share it. Raises `FormatError`."""
        location, offset, length = _entries(tensor, expected)
        if length != expected:
            raise FormatError(f"the external data has a length of {length} bytes; dims and data type need {expected}")
        region = self._regions.get((location, offset, length))
        if region is None:
            region = self._regions[location, offset, length] = self._read(location, offset, length)
        return region

    def close(self) -> None:
        """Close every file. What was read stays."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _read(self, location: str, offset: int, length: int) -> NDArray[np.uint8]:
        file = self._open(location)
        size = self._sizes[location]
        if offset + length > size:
            raise FormatError(
                f"the external data is bytes {offset} to {offset + length} of '{printable(location)}', which has {size} bytes",
                hint="is the data file complete, and the one that was saved with this model?",
            )
        self._unread[location] -= length
        if self._unread[location] < 0:
            raise FormatError(f"the tensors in '{printable(location)}' overlap: together they are more than twice the file")
        # Asked before it is tried: a file can be a hole of any size, and Linux grants memory that it does not have.
        if length > _physical_memory():
            needed = f"the external data in '{printable(location)}' needs {length} bytes"
            raise OutOfMemory(f"{needed}; the host has {_physical_memory()}")
        return self._region(file, offset, length, location)

    def _region(self, file: io.FileIO, offset: int, length: int, location: str) -> NDArray[np.uint8]:
        mapped = self._mapped[location]
        if mapped is not None and length >= SMALLEST_REGION:
            return mapped.region(offset, length)
        region = np.empty(length, np.uint8)
        _fill(file, offset, location, region.data)
        region.flags.writeable = False
        return region

    def _open(self, location: str) -> io.FileIO:
        if location not in self._files:
            file = self.source.open_beside(location)
            self._files[location] = file
            assert isinstance(self.source.data, Path)  # else no file is beside it
            self._mapped[location] = mapped = MappedFile.of(self.source.data.parent / location, file.fileno())
            self._sizes[location] = size = file.seek(0, io.SEEK_END) if mapped is None else mapped.content.nbytes
            self._unread[location] = 2 * size
        return self._files[location]


def _entries(tensor: TensorProto, expected: int) -> tuple[str, int, int]:
    found: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key in found:
            raise FormatError(f"external_data has the key '{printable(entry.key)}' twice")
        if entry.key in _KEYS:
            found[entry.key] = entry.value
    if not isinstance(found.get("location"), str):
        raise FormatError("external_data has no valid location", hint="accepted: a relative path")
    return found["location"], _number("offset", found.get("offset", "0")), _number("length", found.get("length", str(expected)))


def _number(key: str, text: str | bytes) -> int:
    if not (isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise FormatError(f"external_data has the {key} '{printable(text)}'", hint="accepted: a decimal number, not negative")
    return int(text)


def _physical_memory() -> int:
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names:  # not on Windows, which grants only memory that it has
        return sys.maxsize
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _fill(file: io.FileIO, offset: int, location: str, view: memoryview) -> None:
    done = 0
    try:
        file.seek(offset)
        while done < len(view):
            count = file.readinto(view[done:])
            if not count:
                raise FormatError(f"the data file '{printable(location)}' became shorter while it was read")
            done += count
    except OSError as error:
        raise FormatError(f"the data file '{printable(location)}' cannot be read: {error.strerror}") from error
