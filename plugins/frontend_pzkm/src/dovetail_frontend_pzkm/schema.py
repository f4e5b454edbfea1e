"""The tables of a .pzkm file, a flatbuffer, as dataclasses. The order of the fields is that of their slots.

Files are written with the identifier `PZKM` or, by the format's own engine, without one.
"""

import dataclasses
import enum
from dataclasses import dataclass, field
from typing import Any

# ruff: noqa: RUF009  # `_slot` is dataclasses.field with the slot's kind

__all__ = [
    "IDENTIFIER",
    "AttrMeta",
    "Attributes",
    "Connect",
    "DataLayout",
    "DataType",
    "Kind",
    "Layer",
    "PModel",
    "Slot",
    "Tensor",
    "TensorShape",
    "TensorType",
    "Time",
    "Weights",
    "slots",
]

IDENTIFIER = b"PZKM"


class Kind(enum.Enum):
    """The type of a slot. Scalars have their `struct` code as value."""

    U8 = "B"
    I8 = "b"
    BOOL = "?"
    U32 = "I"
    U64 = "Q"
    STRING = "string"
    TABLE = "table"
    U32S = "vector of uint"
    BYTES = "vector of ubyte"
    TABLES = "vector of tables"

    @property
    def is_scalar(self) -> bool:
        """True for numbers, which are stored in the table itself."""
        return len(self.value) == 1


@dataclass(frozen=True)
class Slot:
    """One field of a table; `default` stands for one that is not stored, `table` is the class of tables in it."""

    name: str
    kind: Kind
    default: Any
    table: type | None


def slots(table: type) -> tuple[Slot, ...]:
    """The slots of one of the classes below, in order."""
    return tuple(Slot(f.name, f.metadata["kind"], f.metadata["default"], f.metadata["table"]) for f in dataclasses.fields(table))


def _slot(kind: Kind, default: Any, table: type | None = None) -> Any:
    return field(default=default, metadata={"kind": kind, "default": default, "table": table})


class DataType(enum.IntEnum):
    """Element types. Those with Q are quantized; the file says neither scale nor zero point."""

    INT32 = 0
    BOOL = 1
    INT4 = 2
    UINT4 = 3
    INT8 = 4
    UINT8 = 5
    INT16 = 6
    UINT16 = 7
    FP16 = 8
    FP32 = 9
    QSYMMEINT4 = 10
    QSYMMEINT8 = 11
    QASYMMEUINT4 = 12
    QASYMMEUINT8 = 13
    UINT32 = 14
    CHAR = 15


class TensorType(enum.IntEnum):
    """Whether the file has a tensor's values."""

    CONST = 0
    DYNAMIC = 1


class DataLayout(enum.IntEnum):
    """The meaning of a tensor's dimensions."""

    NCHW = 0
    NHWC = 1
    ND = 2
    NCD = 3


@dataclass(frozen=True)
class Time:
    """When the model was made."""

    year: int = _slot(Kind.U32, 1998)
    month: int = _slot(Kind.U8, 10)
    day: int = _slot(Kind.U8, 11)
    hour: int = _slot(Kind.U8, 6)
    min: int = _slot(Kind.U8, 6)
    sec: int = _slot(Kind.U8, 6)


@dataclass(frozen=True)
class TensorShape:
    """`dims` has four entries at least, the missing ones 1; `dimsize` says how many count."""

    dimsize: int = _slot(Kind.U8, 0)
    dims: tuple[int, ...] = _slot(Kind.U32S, ())


@dataclass(frozen=True)
class Weights:
    """The values of a constant tensor, row by row."""

    ele_bytes: int = _slot(Kind.U8, 0)
    ele_num: int = _slot(Kind.U64, 0)
    buffer: bytes | memoryview = _slot(Kind.BYTES, b"")


@dataclass(frozen=True)
class Tensor:
    """A value. (`tesor_type` is how the format spells it.)"""

    id: int = _slot(Kind.U32, 0)
    name: str = _slot(Kind.STRING, "")
    tesor_type: int = _slot(Kind.I8, 0)
    data_type: int = _slot(Kind.I8, 0)
    data_layout: int = _slot(Kind.I8, 0)
    shape: TensorShape | None = _slot(Kind.TABLE, None, TensorShape)
    weights: Weights | None = _slot(Kind.TABLE, None, Weights)


@dataclass(frozen=True)
class AttrMeta:
    """An attribute: `buffer` holds `buffer_ele_num` elements of the `DataType` `buffer_data`; none means the default."""

    key: str = _slot(Kind.STRING, "")
    require: bool = _slot(Kind.BOOL, False)
    buffer_data: int = _slot(Kind.I8, 0)
    buffer_ele_num: int = _slot(Kind.U32, 0)
    buffer: bytes | memoryview = _slot(Kind.BYTES, b"")


@dataclass(frozen=True)
class Attributes:
    """The attributes of a layer; `type` is the layer's with `-Attrs` behind it."""

    type: str = _slot(Kind.STRING, "")
    meta_num: int = _slot(Kind.U32, 0)
    meta_require_num: int = _slot(Kind.U32, 0)
    buffer: tuple[AttrMeta, ...] = _slot(Kind.TABLES, (), AttrMeta)


@dataclass(frozen=True)
class Connect:
    """A port of a layer, and the tensor at it."""

    name: str = _slot(Kind.STRING, "")
    necessary: bool = _slot(Kind.BOOL, False)
    tensor_id: int = _slot(Kind.U32, 0)


@dataclass(frozen=True)
class Layer:
    """An operation; `type` is one of the catalogue."""

    id: int = _slot(Kind.U32, 0)
    name: str = _slot(Kind.STRING, "")
    type: str = _slot(Kind.STRING, "")
    input_num: int = _slot(Kind.U8, 0)
    output_num: int = _slot(Kind.U8, 0)
    input_id: tuple[Connect, ...] = _slot(Kind.TABLES, (), Connect)
    output_id: tuple[Connect, ...] = _slot(Kind.TABLES, (), Connect)
    require_attrs: bool = _slot(Kind.BOOL, False)
    attrs: Attributes | None = _slot(Kind.TABLE, None, Attributes)


@dataclass(frozen=True)
class PModel:
    """The root table."""

    author: str = _slot(Kind.STRING, "")
    create_time: Time | None = _slot(Kind.TABLE, None, Time)
    version: str = _slot(Kind.STRING, "")
    model_name: str = _slot(Kind.STRING, "")
    model_runtime_input_num: int = _slot(Kind.U32, 0)
    model_runtime_output_num: int = _slot(Kind.U32, 0)
    model_runtime_input_id: tuple[int, ...] = _slot(Kind.U32S, ())
    model_runtime_output_id: tuple[int, ...] = _slot(Kind.U32S, ())
    all_tensor_num: int = _slot(Kind.U32, 0)
    tensor_buffer: tuple[Tensor, ...] = _slot(Kind.TABLES, (), Tensor)
    layer_num: int = _slot(Kind.U32, 0)
    layer_buffer: tuple[Layer, ...] = _slot(Kind.TABLES, (), Layer)
