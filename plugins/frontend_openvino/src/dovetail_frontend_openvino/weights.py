"""The `.bin` beside the `.xml`: what a `Const` holds, checked against the file and against the declared shape and type."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dovetail.frontend import MAX_RANK, SMALLEST_REGION, DType, FormatError, MappedFile, ModelSource, as_constant, printable
from dovetail_frontend_openvino.text import element_type, integer, shape

__all__ = ["Weights"]

_LIMIT = 2**40
_GROWTH = 80 * 2**20
"""Constants that are copied, because they are packed, not aligned or small, may take 80 MiB and four times the file."""

_NF4 = np.array(
    (
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334),
        *(-0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ),
    np.float32,
)
"""The values of the 16 codes of nf4 (arXiv:2305.14314, appendix E)."""

_SPLIT = {"u3": 2, "u6": 4}
"""Types of which a group of elements takes three bytes, and how many of an element's bits are in the first two of them."""

_BITS = {DType.INT4: 4, DType.UINT4: 4, DType.UINT2: 2, DType.FLOAT4_E2M1: 4}
"""Types of which several elements share a byte, the first in its low bits."""


class Weights:
    """The content of the weights, mapped when the first constant asks for it. `given` is that content, or a path, or None."""

    def __init__(self, source: ModelSource, given: Path | bytes | None) -> None:
        self._source = source
        self._given = given
        self._content: NDArray[np.uint8] | None = None
        self._mapped: MappedFile | None = None
        self._copies: dict[tuple[int, int, DType], NDArray[Any]] = {}
        self._copied = 0

    def constant(self, attributes: Mapping[str, str]) -> NDArray[Any]:
        """The array of a Const from the attributes of its <data>; read-only. Raises `FormatError`."""
        for name in ("element_type", "shape", "offset", "size"):
            if name not in attributes:
                raise FormatError(f"<data> has no attribute '{name}'", hint="a Const has element_type, shape, offset, size")
        if attributes["element_type"].strip().lower() == "nf4":
            codes = self.constant({**attributes, "element_type": "u4"})
            self._spend(4 * codes.size)
            return as_constant(_NF4[codes.astype(np.uint8)])
        kind = attributes["element_type"].strip().lower()
        dtype = element_type(attributes["element_type"], "element_type")
        if dtype is None or dtype is DType.STRING:
            raise FormatError(
                f"constants of the element type '{attributes['element_type']}' are not read", hint="accepted: numbers"
            )
        dims = _dims(attributes["shape"])
        offset, size = integer(attributes["offset"], "offset"), integer(attributes["size"], "size")
        if math.prod(dims) == 0:
            return as_constant(np.zeros(dims, dtype.numpy))
        needed = _nbytes(math.prod(dims), kind, dtype)
        if size != needed:
            raise FormatError(f"size is {size}; {math.prod(dims)} elements of {attributes['element_type']} need {needed}")
        if offset < 0 or offset + size > len(self._bytes):
            raise FormatError(
                f"offset {offset} and size {size} reach beyond the weights, which have {len(self._bytes)} bytes",
                hint="does the .bin belong to this .xml, and is it complete?",
            )
        if kind in _SPLIT:
            self._spend(size * 8 // (_SPLIT[kind] + 1))
            array = _joined(self._bytes[offset : offset + size], _SPLIT[kind])
        else:
            array = self._array(offset, size, dtype)
        return as_constant(array[: math.prod(dims)].reshape(dims))

    def _array(self, offset: int, size: int, dtype: DType) -> NDArray[Any]:
        found = self._in_place(offset, size) if dtype not in _BITS and offset % dtype.itemsize == 0 else None
        if found is not None:
            array: NDArray[Any] = found.view(dtype.numpy)
            return _booleans(array) if dtype is DType.BOOL else array
        key = (offset, size, dtype)
        if key not in self._copies:
            self._spend(size * (8 // _BITS.get(dtype, 8)))
            self._copies[key] = _copy(self._bytes[offset : offset + size], dtype)
        return self._copies[key]

    def _in_place(self, offset: int, size: int) -> NDArray[np.uint8] | None:
        """Bytes where they are; None if they have to be copied, since a region of a file is not worth it."""
        content = self._bytes[offset : offset + size]
        if self._mapped is None:
            return content
        return self._mapped.region(offset, size) if size >= SMALLEST_REGION else None

    def _spend(self, size: int) -> None:
        self._copied += size
        if self._copied > _GROWTH + 4 * len(self._bytes):
            raise FormatError("constants that overlap or are packed would take many times the size of the weights")

    @property
    def _bytes(self) -> NDArray[np.uint8]:
        if self._content is None:
            self._content = self._read()
        return self._content

    def _read(self) -> NDArray[np.uint8]:
        if isinstance(self._given, bytes):
            return np.frombuffer(self._given, np.uint8)
        if self._given is not None:
            with ModelSource(self._given).open(_LIMIT) as (file, _):
                return self._content_of(file, self._given)
        if isinstance(self._source.data, bytes):
            raise FormatError(
                "the model has constants, but was given as bytes without weights", hint="give weights=, or the path of the .xml"
            )
        path = self._source.data.with_suffix(".bin")
        with self._source.open_beside(path.name) as file:
            return self._content_of(file, path)

    def _content_of(self, file: BinaryIO, path: Path) -> NDArray[np.uint8]:
        self._mapped = MappedFile.of(path, file.fileno())
        return np.frombuffer(file.read(), np.uint8) if self._mapped is None else self._mapped.content


def _nbytes(count: int, kind: str, dtype: DType) -> int:
    if kind in _SPLIT:
        return 3 * -(-count // (16 // _SPLIT[kind]))
    return -(-count * _BITS.get(dtype, 8 * dtype.itemsize) // 8)


def _joined(content: NDArray[np.uint8], low: int) -> NDArray[Any]:
    """Elements whose `low` low bits are in two bytes and whose others are in the third; the first is in the high bits of each."""
    groups = content.reshape(-1, 3)
    firsts = (groups[:, :2, None] >> np.arange(8 - low, -1, -low, dtype=np.uint8) & (2**low - 1)).reshape(len(groups), -1)
    high = low // 2
    rest = groups[:, 2:] >> np.arange(8 - high, -1, -high, dtype=np.uint8) & (2**high - 1)
    return np.asarray(firsts | rest << low, np.uint8).reshape(-1)


def _dims(text: str) -> tuple[int, ...]:
    dims = shape(text, "a dimension of shape")
    known = [d for d in dims or () if isinstance(d, int)]
    if dims is None or len(known) < len(dims) or len(dims) > MAX_RANK:
        raise FormatError(f"the shape is '{printable(text)}'", hint=f"a Const has at most {MAX_RANK} dimensions, each a number")
    return tuple(known)


def _booleans(array: NDArray[Any]) -> NDArray[Any]:
    if array.size and int(array.view(np.uint8).max()) > 1:
        array = array.view(np.uint8) != 0  # another byte than 0 or 1 is not a bool that NumPy may hold
    return array


def _copy(content: NDArray[np.uint8], dtype: DType) -> NDArray[Any]:
    bits = _BITS.get(dtype)
    if bits is None:
        copy: NDArray[Any] = content.copy().view(dtype.numpy)
        return _booleans(copy) if dtype is DType.BOOL else copy
    parts = np.stack([content >> shift & (2**bits - 1) for shift in range(0, 8, bits)], axis=-1).reshape(-1)
    if dtype is DType.FLOAT4_E2M1:
        return parts.astype(np.uint8).view(dtype.numpy)
    signed = np.where(parts > 7, parts.astype(np.int8) - 16, parts) if dtype is DType.INT4 else parts
    array: NDArray[Any] = signed.astype(np.int8 if dtype is DType.INT4 else np.uint8).astype(dtype.numpy)
    return array
