"""The data types of the open inference protocol, and tensors as bytes and as JSON values of them."""

import itertools
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import UsageError
from dovetail.op import DType, TensorType
from dovetail_kserve.errors import RequestRefused

__all__ = [
    "DATATYPES",
    "check_range",
    "check_shape",
    "datatype_of",
    "from_bytes",
    "from_values",
    "in_parts",
    "metadata_of",
    "shaped",
    "to_bytes",
    "to_values",
]

DATATYPES: Mapping[str, DType] = {
    "BOOL": DType.BOOL,
    "UINT8": DType.UINT8,
    "UINT16": DType.UINT16,
    "UINT32": DType.UINT32,
    "UINT64": DType.UINT64,
    "INT8": DType.INT8,
    "INT16": DType.INT16,
    "INT32": DType.INT32,
    "INT64": DType.INT64,
    "FP16": DType.FLOAT16,
    "FP32": DType.FLOAT32,
    "FP64": DType.FLOAT64,
    "BF16": DType.BFLOAT16,
    "BYTES": DType.STRING,
}
"""The protocol's names. Complex numbers and the types of 8 bits and fewer other than integers have none."""

_NAMES = {dtype: name for name, dtype in DATATYPES.items()}

_MOST_DIMENSIONS = 32
"""Types that every version of NumPy takes."""

_PART = 65_536

_LENGTH = struct.Struct("<I")
"""The length before each element of BYTES."""


def datatype_of(tensor: TensorType, name: str) -> str:
    """The protocol's name of a tensor's type. Raises `UsageError` for types that the protocol lacks."""
    if type(tensor) is TensorType and tensor.dtype in _NAMES:
        return _NAMES[tensor.dtype]
    hint = "convert it inside of the model"
    raise UsageError(f"{name!r} is {tensor}; the open inference protocol has {', '.join(DATATYPES)}", hint=hint)


def metadata_of(name: str, tensor: TensorType) -> dict[str, Any]:
    """Name, data type and shape, as the metadata of a model list them: dimensions that are open are -1."""
    shape = (None,) if tensor.shape is None else tensor.shape
    return {
        "name": name,
        "datatype": datatype_of(tensor, name),
        "shape": [d if isinstance(d, int) else -1 for d in shape],
    }


def check_shape(name: str, shape: object) -> tuple[int, ...]:
    """The shape of an input as numbers. Raises `RequestRefused`."""
    if not isinstance(shape, Sequence) or isinstance(shape, str | bytes):
        raise RequestRefused(f"input {name!r}: the shape is {shape!r:.60}; accepted: a list of numbers")
    if len(shape) > _MOST_DIMENSIONS or any(type(dim) is not int or not 0 <= dim < 1 << 63 for dim in shape):
        accepted = f"up to {_MOST_DIMENSIONS} numbers of 64 bits that are not negative"
        raise RequestRefused(f"input {name!r}: the shape is {list(shape[:20])!r:.80}; accepted: {accepted}")
    return tuple(shape)


def shaped(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The array in a shape of as many elements. Raises `RequestRefused`."""
    try:
        return array.reshape(shape)
    except ValueError:  # no elements, and dimensions whose product has more than 64 bits
        raise RequestRefused(f"input {name!r}: the shape {list(shape)} is too large") from None


# --- bytes -----------------------------------------------------------------------------------------------------------


def from_bytes(name: str, datatype: str, shape: tuple[int, ...], content: bytes | memoryview) -> NDArray[Any]:
    """The array that binary data holds; read-only, in the memory of `content` except for BYTES. Raises `RequestRefused`."""
    dtype, count = DATATYPES[datatype].numpy, math.prod(shape)
    if datatype == "BYTES":
        return shaped(name, np.array(_strings(name, content, count), object), shape)
    if len(content) != count * dtype.itemsize:
        wanted = f"{datatype}{list(shape)} has {count * dtype.itemsize}"
        raise RequestRefused(f"input {name!r} has {len(content)} bytes; {wanted}", hint="send the whole tensor")
    if datatype == "BOOL":  # any byte other than 0 and 1 would make an invalid bool
        return shaped(name, np.frombuffer(content, np.uint8).astype(bool), shape)
    return shaped(name, np.frombuffer(content, dtype.newbyteorder("<")).astype(dtype, copy=False), shape)


def _strings(name: str, content: bytes | memoryview, count: int) -> list[str]:
    view, position = memoryview(content), 0
    found: list[str] = []
    while position < len(view):
        end = position + _LENGTH.size
        if end <= len(view):
            end += _LENGTH.unpack_from(view, position)[0]
        if end > len(view) or end < position + _LENGTH.size:
            raise RequestRefused(f"input {name!r}: element {len(found)} ends after the {len(view)} bytes of the tensor")
        found.append(_decoded(name, bytes(view[position + _LENGTH.size : end])))
        position = end
    if len(found) != count:
        raise RequestRefused(f"input {name!r} has {len(found)} elements; its shape has {count}")
    return found


def _decoded(name: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise RequestRefused(f"input {name!r} has an element that is not UTF-8 ({error}); accepted: UTF-8") from None


def to_bytes(array: NDArray[Any]) -> bytes:
    """The binary data of an array: little endian, in row-major order; strings with their lengths."""
    if array.dtype != object:
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    elements = [value if isinstance(value, bytes) else str(value).encode() for value in array.reshape(-1)]
    return b"".join(part for element in elements for part in (_LENGTH.pack(len(element)), element))


# --- JSON values -----------------------------------------------------------------------------------------------------


def from_values(name: str, datatype: str, shape: tuple[int, ...], values: object) -> NDArray[Any]:
    """The array of a flat or nested list of numbers, booleans or strings. Raises `RequestRefused`."""
    flat = _flat(name, values)
    if len(flat) != math.prod(shape):
        raise RequestRefused(f"input {name!r} has {len(flat)} values; its shape {list(shape)} has {math.prod(shape)}")
    return shaped(name, in_parts(DATATYPES[datatype].numpy, flat, lambda part: _checked(name, datatype, part)), shape)


def in_parts(dtype: np.dtype[Any], values: Sequence[Any], convert: Callable[[Any], Any]) -> NDArray[Any]:
    """The array of values that are converted some at a time: other threads run in between."""
    array = np.empty(len(values), dtype)
    for start in range(0, len(values), _PART):
        part = values[start : start + _PART]
        array[start : start + len(part)] = convert(part)
    return array


def _checked(name: str, datatype: str, values: list[Any]) -> Any:
    accepted = _ACCEPTED.get(datatype, (int,) if "INT" in datatype else (int, float))
    wrong = set(map(type, values)) - set(accepted)
    if wrong:
        kinds = " or ".join(kind.__name__ for kind in accepted)
        kind = wrong.pop()
        given = "the value null" if kind is type(None) else f"a value of type {kind.__name__}"
        raise RequestRefused(f"input {name!r} is {datatype} and has {given}; accepted: {kinds}")
    if datatype == "BYTES":
        return [_decoded(name, value) if isinstance(value, bytes) else value for value in values]
    if "INT" in datatype:
        return check_range(name, datatype, values)
    return _floats(name, datatype, values) if "F" in datatype else values


_ACCEPTED: Mapping[str, tuple[type, ...]] = {"BOOL": (bool,), "BYTES": (str, bytes)}


def _flat(name: str, values: object) -> list[Any]:
    """The elements in row-major order. Raises `RequestRefused` for lists of different lengths."""
    if not isinstance(values, list):
        raise RequestRefused(f"input {name!r}: the data is {values!r:.60}; accepted: a list")
    while values and isinstance(values[0], list):
        if set(map(type, values)) != {list} or len(set(map(len, values))) > 1:
            raise RequestRefused(f"input {name!r}: the nested lists of its data have different lengths")
        values = list(itertools.chain.from_iterable(values))
    return values


def check_range(name: str, datatype: str, values: list[int]) -> list[int]:
    """The values. Raises `RequestRefused` for one that the data type lacks."""
    limits = np.iinfo(DATATYPES[datatype].numpy)
    for value in (min(values), max(values)) if values else ():
        if not limits.min <= value <= limits.max:
            accepted = f"accepted: {limits.min} to {limits.max}"
            raise RequestRefused(f"input {name!r} is {datatype} and has the value {value!r:.40}; {accepted}")
    return values


def _floats(name: str, datatype: str, flat: list[float]) -> NDArray[Any]:
    try:
        with np.errstate(over="ignore"):
            array = np.array(flat, np.float64).astype(DATATYPES[datatype].numpy)
    except OverflowError:
        array = np.array([np.inf])
    # Text has no infinity: where there is one, the value was too large.
    if not np.isfinite(array.astype(np.float64)).all():
        raise RequestRefused(f"input {name!r} has a value that is too large for {datatype}", hint="send binary data")
    return array


def to_values(name: str, array: NDArray[Any]) -> Any:
    """A value that orjson writes as a flat list. Raises `RequestRefused` for values that JSON lacks."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype == object:
        return [value if isinstance(value, str) else _decoded(name, bytes(value)) for value in flat]
    if flat.dtype.kind not in "biu":
        # bfloat16 is a type that orjson does not know; every value of it is a float32.
        flat = flat if flat.dtype.kind == "f" else flat.astype(np.float32)
        if not np.isfinite(flat).all():
            hint = "ask for binary data: the parameter binary_data of the output"
            raise RequestRefused(f"output {name!r} has NaN or infinite values, which JSON lacks", hint=hint)
    return flat
