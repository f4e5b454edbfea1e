"""NumPy arrays and types to TensorProto and TypeProto."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.frontend import DType, FormatError, MapType, OptionalType, SequenceType, TensorType
from dovetail_frontend_onnx.messages import TensorProto, TypeProto, ValueInfoProto

__all__ = ["tensor_proto", "type_proto", "value_info"]

_PACKED_BITS = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4}


def tensor_proto(array: NDArray[Any], name: str = "") -> TensorProto:
    """The tensor with its elements as raw data, strings as `string_data`."""
    dtype = DType.STRING if array.dtype == object else DType.of(array.dtype)
    proto = TensorProto(name=name, data_type=dtype.onnx, dims=array.shape)
    if dtype is DType.STRING:
        proto.string_data.extend(str(item).encode("utf-8", "surrogateescape") for item in array.reshape(-1))
    else:
        proto.raw_data = _raw(array, dtype)
    return proto


def _raw(array: NDArray[Any], dtype: DType) -> bytes:
    flat = np.ascontiguousarray(array).reshape(-1)
    bits = _PACKED_BITS.get(dtype.value)
    if bits is None:
        if dtype.value.startswith("float6_"):
            raise FormatError(f"{dtype} tensors are not written", hint="convert them to another type")
        little_endian = flat.astype(flat.dtype.newbyteorder("<"), copy=False) if flat.dtype.isbuiltin == 1 else flat
        return little_endian.tobytes()
    # An element takes one byte in the array; floats by their bits, integers by value.
    codes = flat.view(np.uint8) if dtype.is_float else flat.astype(np.int8).view(np.uint8)
    per_byte = 8 // bits
    rows = np.pad(codes & (2**bits - 1), (0, -flat.size % per_byte)).reshape(-1, per_byte)
    packed = np.zeros(len(rows), np.uint8)
    for position in range(per_byte):
        packed |= rows[:, position] << (position * bits)
    return packed.tobytes()


def value_info(name: str, declared: TensorType | None) -> ValueInfoProto:
    """A value with its type, if that is known."""
    proto = ValueInfoProto(name=name)
    if declared is not None:
        proto.type.CopyFrom(type_proto(declared))
    return proto


def type_proto(declared: TensorType) -> TypeProto:
    """A tensor, map, sequence or optional tensor. Names of dimensions are kept; what is not known is left open."""
    proto = TypeProto()
    if isinstance(declared, MapType):
        proto.map_type.key_type = declared.keys.onnx
        proto.map_type.value_type.CopyFrom(type_proto(TensorType(declared.dtype, None)))
    elif isinstance(declared, SequenceType):
        proto.sequence_type.elem_type.CopyFrom(type_proto(declared.items))
    elif isinstance(declared, OptionalType):
        proto.optional_type.elem_type.CopyFrom(type_proto(TensorType(declared.dtype, None)))
    else:
        proto.tensor_type.elem_type = declared.dtype.onnx
        _set_shape(proto, declared)
    return proto


def _set_shape(proto: TypeProto, declared: TensorType) -> None:
    if declared.shape is None:
        return
    proto.tensor_type.shape.SetInParent()
    for size in declared.shape:
        dim = proto.tensor_type.shape.dim.add()
        if isinstance(size, int):
            dim.dim_value = size
        elif isinstance(size, str):
            dim.dim_param = size
