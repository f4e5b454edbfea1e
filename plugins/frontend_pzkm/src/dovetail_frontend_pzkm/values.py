"""Buffers of tensors and attributes, to and from NumPy and Python."""

import math
import re
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.frontend import MAX_RANK, DType, FormatError, as_constant, printable
from dovetail_frontend_pzkm.catalogue import ENUMS, LayerType
from dovetail_frontend_pzkm.schema import Attributes, AttrMeta, DataType, Tensor, TensorShape, Weights

__all__ = [
    "attribute_values",
    "number_of",
    "read_shape",
    "tensor_array",
    "tensor_dtype",
    "text_integers",
    "write_attributes",
    "write_shape",
    "write_weights",
]

MIN_RANK = 4
"""Shapes in a file have four dimensions at least."""

_MAX_ELEMENTS = 128
"""Of an attribute: lists have two a dimension at most."""

_MAX_TEXT = 10_000
_BLOCK = 2**20
_DTYPES: dict[DataType, DType] = {
    DataType.INT32: DType.INT32,
    DataType.BOOL: DType.BOOL,
    DataType.INT4: DType.INT4,
    DataType.UINT4: DType.UINT4,
    DataType.INT8: DType.INT8,
    DataType.UINT8: DType.UINT8,
    DataType.INT16: DType.INT16,
    DataType.UINT16: DType.UINT16,
    DataType.FP16: DType.FLOAT16,
    DataType.FP32: DType.FLOAT32,
    DataType.UINT32: DType.UINT32,
    # The plain codes: the format has no scale with which they could become numbers.
    DataType.QSYMMEINT4: DType.INT4,
    DataType.QSYMMEINT8: DType.INT8,
    DataType.QASYMMEUINT4: DType.UINT4,
    DataType.QASYMMEUINT8: DType.UINT8,
    DataType.CHAR: DType.UINT8,
}
_NUMBERS = {dtype: number for number, dtype in reversed(_DTYPES.items()) if number is not DataType.CHAR}
_STRUCT: dict[int, str] = {
    DataType.INT32: "i",
    DataType.BOOL: "B",
    DataType.INT8: "b",
    DataType.UINT8: "B",
    DataType.INT16: "h",
    DataType.UINT16: "H",
    DataType.FP16: "e",
    DataType.FP32: "f",
    DataType.UINT32: "I",
}
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)")
_SEPARATORS = re.compile(r"[\s,;x\[\](){}]+")


def number_of(dtype: DType) -> DataType | None:
    """How a file calls an element type; None for one that it cannot hold."""
    return {**_NUMBERS, DType.INT8: DataType.INT8, DType.UINT8: DataType.UINT8}.get(dtype)


# --- tensors --------------------------------------------------------------------------------------------------------------


def read_shape(shape: TensorShape | None) -> tuple[int, ...]:
    """The dimensions that count. Raises `FormatError` for a missing shape and one whose parts do not agree."""
    if shape is None:
        raise FormatError("the tensor has no shape")
    dims, rank = shape.dims, shape.dimsize
    if rank > len(dims) or any(d != 1 for d in dims[rank:]):
        raise FormatError(f"the shape is {list(dims)[:8]} with dimsize {rank}", hint="accepted: dimsize entries, and ones behind")
    if rank > MAX_RANK:
        raise FormatError(f"the tensor has rank {rank}; accepted: at most {MAX_RANK}")
    if math.prod(d for d in dims if d) > 2**63 - 1:
        raise FormatError(f"the shape {list(dims)} has more than 2^63 - 1 elements")
    return dims[:rank]


def write_shape(shape: tuple[int, ...]) -> TensorShape:
    """A shape as files hold it: ones behind up to four dimensions, the true rank in `dimsize`."""
    return TensorShape(len(shape), (*shape, *(1,) * (MIN_RANK - len(shape))))


def tensor_dtype(tensor: Tensor) -> DType:
    """The element type. Raises `FormatError` for an unknown number."""
    try:
        return _DTYPES[DataType(tensor.data_type)]
    except ValueError:
        raise FormatError(f"the data type has the unknown number {tensor.data_type}; known: 0 to {len(DataType) - 1}") from None


def tensor_array(tensor: Tensor, shape: tuple[int, ...]) -> NDArray[Any]:
    """The values of a constant tensor, read-only. Elements of four bits are stored one a byte, or two with the first one low.

    Raises `FormatError` when the buffer does not have as many as the shape says. `ele_bytes` is not looked at: the format's own
    writer gives 1 for 16 bits.
    """
    dtype, count, weights = tensor_dtype(tensor), math.prod(shape), tensor.weights
    if weights is None:
        raise FormatError("the constant tensor has no weights", hint="was the file cut off?")
    stored = np.frombuffer(weights.buffer, np.uint8)
    packed = dtype in (DType.INT4, DType.UINT4) and stored.size != count
    expected = (count + 1) // 2 if packed else count * dtype.numpy.itemsize
    if stored.size != expected or weights.ele_num != count:
        raise FormatError(
            f"the weights are {weights.ele_num} elements in {stored.size} bytes; shape {list(shape)} of {dtype} needs "
            f"{count} in {expected}"
        )
    if dtype in (DType.INT4, DType.UINT4):
        return as_constant(_four_bits(stored, dtype, count, packed).reshape(shape))
    if dtype is DType.BOOL and np.any(stored > 1):
        raise FormatError("a truth value is neither 0 nor 1")
    # A copy where the buffer does not start where the type may: native kernels read whole elements.
    array = stored if stored.ctypes.data % dtype.numpy.itemsize == 0 else stored.copy()
    return as_constant(array.view(dtype.numpy).reshape(shape))


def _four_bits(stored: NDArray[np.uint8], dtype: DType, count: int, packed: bool) -> NDArray[Any]:
    """Block by block: the values take two bytes for each that is stored, and steps between would take as much again."""
    found = np.empty(count, dtype.numpy)
    step = 2 if packed else 1
    for start in range(0, stored.size, _BLOCK):
        block = stored[start : start + _BLOCK]
        codes = np.stack([block & 15, block >> 4], axis=-1).reshape(-1) if packed else block
        values = codes.view(np.int8) if dtype is DType.INT4 else codes
        if packed and dtype is DType.INT4:
            values = (values ^ np.int8(8)) - np.int8(8)
        part = found[step * start : step * start + values.size]
        _in_range(values, *((-8, 7) if dtype is DType.INT4 else (0, 15)))
        part[:] = values[: part.size].astype(dtype.numpy)
    return found


def _in_range(values: NDArray[Any], low: int, high: int) -> None:
    if values.size and (values.min() < low or values.max() > high):
        raise FormatError(f"an element of four bits is not within {low} and {high}")


def write_weights(array: NDArray[Any]) -> Weights:
    """The values of a constant. Elements of four bits take a byte each."""
    stored = array.astype(np.int8) if array.dtype.name in ("int4", "uint4") else array
    return Weights(stored.dtype.itemsize, array.size, np.ascontiguousarray(stored).tobytes())


# --- attributes -----------------------------------------------------------------------------------------------------------


def attribute_values(kind: LayerType, attributes: Attributes | None) -> dict[str, Any]:
    """Every attribute of the layer type: what the file gives, else the default. Raises `FormatError`.

    Elements are read by the type that the file states; a catalogue type of int32 gives them their sign back (the format's own
    writer states uint32 there), and numbers may also be written as text.
    """
    found = {name: default for name, (_, default) in kind.attributes.items()}
    seen = set()
    for meta in attributes.buffer if attributes else ():
        if meta.key in seen or meta.key not in kind.attributes:
            what = "there twice" if meta.key in seen else f"unknown; {kind.name} has {', '.join(kind.attributes) or 'none'}"
            raise FormatError(f"the attribute '{printable(meta.key)}' is {what}")
        seen.add(meta.key)
        try:
            values = _elements(meta)
            if values not in ((), ""):
                found[meta.key] = _typed(kind.attributes[meta.key][0], values)
        except FormatError as error:
            raise FormatError(f"attribute '{meta.key}': {error.message}", hint=error.hint) from None
    return found


def _elements(meta: AttrMeta) -> tuple[Any, ...] | str:
    if len(meta.buffer) > max(_MAX_TEXT, 4 * _MAX_ELEMENTS):
        raise FormatError(f"it has {len(meta.buffer)} bytes; accepted: at most {_MAX_TEXT}, and {_MAX_ELEMENTS} numbers")
    data, count = bytes(meta.buffer), meta.buffer_ele_num
    if meta.buffer_data == DataType.CHAR:
        if count > len(data) or any(data[count:]):
            raise FormatError(f"it has {count} characters in {len(data)} bytes")
        try:
            return data[:count].decode("utf-8").strip("\0")
        except UnicodeDecodeError:
            raise FormatError("it is not UTF-8") from None
    code = _STRUCT.get(meta.buffer_data)
    if code is None:
        raise FormatError(f"it has the data type number {meta.buffer_data}", hint="accepted: integers, FP16, FP32, BOOL, CHAR")
    if len(data) != count * struct.calcsize(f"<{code}"):
        raise FormatError(f"it has {count} elements of {struct.calcsize(f'<{code}')} bytes in {len(data)} bytes")
    return struct.unpack(f"<{count}{code}", data)


def _typed(wanted: str, values: tuple[Any, ...] | str) -> Any:
    if wanted in ENUMS:
        return _enum(wanted, values)
    if wanted == "string":
        return values if isinstance(values, str) else ",".join(map(str, values))
    if wanted == "boolean" and isinstance(values, str):
        return _boolean(values)
    numbers = _numbers(values) if isinstance(values, str) else values
    if wanted.endswith("[]"):
        return tuple(_integer(wanted, v) for v in numbers)
    if len(numbers) != 1:
        raise FormatError(f"it has {len(numbers)} elements; accepted: 1")
    if wanted == "float32":
        if not math.isfinite(numbers[0]):
            raise FormatError(f"it is {numbers[0]}; accepted: a finite number")
        return float(numbers[0])
    return bool(numbers[0]) if wanted == "boolean" else _integer(wanted, numbers[0])


def text_integers(name: str, text: str) -> tuple[int, ...]:
    """The numbers of a text such as `0,2,3,1`. Raises `FormatError` naming the attribute."""
    try:
        return tuple(_integer("uint32", number) for number in _numbers(text))
    except FormatError as error:
        raise FormatError(f"attribute '{name}': {error.message}") from None


def _numbers(text: str) -> tuple[float, ...]:
    parts = [part for part in _SEPARATORS.split(text) if part]
    if not all(_NUMBER.fullmatch(part) for part in parts):
        raise FormatError(f"it is '{printable(text)}'; accepted: numbers")
    return tuple(float(part) for part in parts)


def _integer(wanted: str, value: float) -> int:
    if value != value or value in (math.inf, -math.inf) or int(value) != value:
        raise FormatError(f"it is {value}; accepted: an integer")
    number = int(value)
    if wanted.startswith("int32") and 2**31 <= number < 2**32:
        number -= 2**32
    low, high = (-(2**31), 2**31 - 1) if wanted.startswith("int32") else (0, 2**32 - 1)
    if not low <= number <= high:
        raise FormatError(f"it is {number}; accepted: {low} to {high}")
    return number


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false", "0", "1"):
        raise FormatError(f"it is '{printable(text)}'; accepted: true, false")
    return word in ("true", "1")


def _enum(wanted: str, values: tuple[Any, ...] | str) -> str:
    names = ENUMS[wanted]
    if isinstance(values, str):
        by_lower = {name.lower(): name for name in names}
        if values.lower() in by_lower:
            return by_lower[values.lower()]
    elif len(values) == 1 and values[0] in range(len(names)):
        return names[int(values[0])]
    shown = printable(values) if isinstance(values, str) else str(list(values)[:4])
    raise FormatError(f"it is '{shown}'; accepted: {', '.join(names)}")


def write_attributes(kind: LayerType, values: dict[str, Any]) -> Attributes:
    """The attributes of a layer; those that are not given are stored without elements, as the format's own writer does."""
    metas = tuple(_meta(name, wanted, values.get(name)) for name, (wanted, _) in sorted(kind.attributes.items()))
    return Attributes(f"{kind.name}-Attrs", len(metas), len(metas), metas)


def _meta(name: str, wanted: str, value: Any) -> AttrMeta:
    if wanted in ENUMS or wanted == "string":
        text = str("" if value is None else value).encode()
        return AttrMeta(name, True, DataType.CHAR, len(text), text)
    number = {"float32": DataType.FP32, "boolean": DataType.BOOL}.get(wanted.removesuffix("[]"))
    number = number or (DataType.INT32 if wanted.startswith("int32") else DataType.UINT32)
    values = () if value is None else tuple(value) if wanted.endswith("[]") else (value,)
    return AttrMeta(name, True, number, len(values), struct.pack(f"<{len(values)}{_STRUCT[number]}", *values))
