"""The messages of ONNX that models are read from, with the fields that reading knows: see onnx.proto of the package onnx."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail_frontend_onnx.wire_format import (
    BYTES,
    BYTES_LIST,
    ENUM,
    FLOAT,
    FLOATS,
    INT32,
    INT64,
    INT64S,
    MESSAGE,
    MESSAGES,
    NUMBERS,
    TEXT,
    TEXTS,
    UNREAD,
    Field,
    Message,
    by_tag,
)

__all__ = [
    "IR_VERSION",
    "AttributeProto",
    "Dimension",
    "FunctionProto",
    "GraphProto",
    "ModelProto",
    "NodeProto",
    "OperatorSetIdProto",
    "SparseTensorProto",
    "StringStringEntryProto",
    "TensorProto",
    "TensorShapeProto",
    "TypeProto",
    "ValueInfoProto",
]

IR_VERSION = 14
"""The newest one of the ONNX release whose messages are vendored."""

Text = str
"""It is `bytes` where it is not UTF-8: readers ask before they believe it."""


class StringStringEntryProto(Message):
    """A key and its value."""

    key: Text = ""
    value: Text = ""
    FIELDS = by_tag({1: Field("key", TEXT), 2: Field("value", TEXT)})


class OperatorSetIdProto(Message):
    """A domain and the version of its operator set."""

    domain: Text = ""
    version: int = 0
    FIELDS = by_tag({1: Field("domain", TEXT), 2: Field("version", INT64)})


class TensorProto(Message):
    """A tensor. The numbers of the typed fields are lists of arrays, of packed numbers, and of numbers."""

    INT64, STRING = 7, 8
    EXTERNAL = 1

    dims: Sequence[int] = ()
    data_type: int = 0
    float_data: Sequence[Any] = ()
    int32_data: Sequence[Any] = ()
    string_data: Sequence[bytes] = ()
    int64_data: Sequence[Any] = ()
    name: Text = ""
    raw_data: bytes = b""
    double_data: Sequence[Any] = ()
    uint64_data: Sequence[Any] = ()
    external_data: Sequence[StringStringEntryProto] = ()
    data_location: int = 0
    FIELDS = by_tag(
        {
            1: Field("dims", INT64S),
            2: Field("data_type", INT32),
            3: Field("segment", BYTES),
            4: Field("float_data", NUMBERS, np.float32),
            5: Field("int32_data", NUMBERS, np.int32),
            6: Field("string_data", BYTES_LIST),
            7: Field("int64_data", NUMBERS, np.int64),
            8: Field("name", TEXT),
            9: Field("raw_data", BYTES),
            10: Field("double_data", NUMBERS, np.float64),
            11: Field("uint64_data", NUMBERS, np.uint64),
            13: Field("external_data", MESSAGES, StringStringEntryProto),
            14: Field("data_location", ENUM, range(2)),
        }
    )


class SparseTensorProto(Message):
    """A sparse tensor."""

    values: TensorProto = TensorProto()
    indices: TensorProto = TensorProto()
    dims: Sequence[int] = ()
    FIELDS = by_tag(
        {1: Field("values", MESSAGE, TensorProto), 2: Field("indices", MESSAGE, TensorProto), 3: Field("dims", INT64S)}
    )


class Dimension(Message):
    """A dimension of a shape. `value` names the field that it has."""

    value: str | None = None
    dim_value: int = 0
    dim_param: Text = ""
    FIELDS = by_tag({1: Field("dim_value", INT64, None, True), 2: Field("dim_param", TEXT, None, True)})


class TensorShapeProto(Message):
    """The shape of a tensor."""

    dim: Sequence[Dimension] = ()
    FIELDS = by_tag({1: Field("dim", MESSAGES, Dimension)})


class _TensorType(Message):
    elem_type: int = 0
    shape: TensorShapeProto = TensorShapeProto()
    FIELDS = by_tag({1: Field("elem_type", INT32), 2: Field("shape", MESSAGE, TensorShapeProto)})


class _ElementType(Message):
    """The type of a sequence or an optional."""

    elem_type: "TypeProto"


class _MapType(Message):
    key_type: int = 0
    value_type: "TypeProto"


class TypeProto(Message):
    """The type of a value. `value` names the field that it has."""

    value: str | None = None
    tensor_type: _TensorType = _TensorType()
    sequence_type: _ElementType = _ElementType()
    map_type: _MapType = _MapType()
    optional_type: _ElementType = _ElementType()
    FIELDS = by_tag(
        {
            1: Field("tensor_type", MESSAGE, _TensorType, True),
            4: Field("sequence_type", MESSAGE, _ElementType, True),
            5: Field("map_type", MESSAGE, _MapType, True),
            7: Field("opaque_type", BYTES, None, True),
            8: Field("sparse_tensor_type", BYTES, None, True),
            9: Field("optional_type", MESSAGE, _ElementType, True),
        }
    )


_ElementType.elem_type = _MapType.value_type = TypeProto()
_ElementType.FIELDS = by_tag({1: Field("elem_type", MESSAGE, TypeProto)})
_MapType.FIELDS = by_tag({1: Field("key_type", INT32), 2: Field("value_type", MESSAGE, TypeProto)})


class ValueInfoProto(Message):
    """A value and its type, a `TypeProto` that is not read yet: most values have one of a few."""

    name: Text = ""
    type: bytes = b""
    FIELDS = by_tag({1: Field("name", TEXT), 2: Field("type", UNREAD)})


class AttributeProto(Message):
    """An attribute of a node."""

    KINDS = (
        "UNDEFINED",
        "FLOAT",
        "INT",
        "STRING",
        "TENSOR",
        "GRAPH",
        "FLOATS",
        "INTS",
        "STRINGS",
        "TENSORS",
        "GRAPHS",
        "SPARSE_TENSOR",
        "SPARSE_TENSORS",
        "TYPE_PROTO",
        "TYPE_PROTOS",
    )
    """The names of the enumeration `AttributeType` by number."""
    FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS, TENSORS, GRAPHS = range(1, 11)
    SPARSE_TENSOR, SPARSE_TENSORS, TYPE_PROTO, TYPE_PROTOS = range(11, 15)

    name: Text = ""
    ref_attr_name: Text = ""
    type: int = 0
    f: float = 0.0
    i: int = 0
    s: bytes = b""
    t: TensorProto = TensorProto()
    g: "GraphProto"
    sparse_tensor: SparseTensorProto = SparseTensorProto()
    tp: TypeProto = TypeProto()
    floats: Sequence[float] = ()
    ints: Sequence[int] = ()
    strings: Sequence[bytes] = ()
    tensors: Sequence[TensorProto] = ()
    graphs: "Sequence[GraphProto]" = ()
    sparse_tensors: Sequence[SparseTensorProto] = ()
    type_protos: Sequence[TypeProto] = ()


class NodeProto(Message):
    """A node of a graph."""

    input: Sequence[Text] = ()
    output: Sequence[Text] = ()
    name: Text = ""
    op_type: Text = ""
    domain: Text = ""
    overload: Text = ""
    attribute: Sequence[AttributeProto] = ()
    FIELDS = by_tag(
        {
            1: Field("input", TEXTS),
            2: Field("output", TEXTS),
            3: Field("name", TEXT),
            4: Field("op_type", TEXT),
            5: Field("attribute", MESSAGES, AttributeProto),
            7: Field("domain", TEXT),
            8: Field("overload", TEXT),
        }
    )


class GraphProto(Message):
    """A graph. The types in `value_info` are messages that are not read yet: few models need them."""

    node: Sequence[NodeProto] = ()
    name: Text = ""
    initializer: Sequence[TensorProto] = ()
    sparse_initializer: Sequence[SparseTensorProto] = ()
    doc_string: Text = ""
    input: Sequence[ValueInfoProto] = ()
    output: Sequence[ValueInfoProto] = ()
    value_info: Sequence[bytes] = ()
    FIELDS = by_tag(
        {
            1: Field("node", MESSAGES, NodeProto),
            2: Field("name", TEXT),
            5: Field("initializer", MESSAGES, TensorProto),
            10: Field("doc_string", TEXT),
            11: Field("input", MESSAGES, ValueInfoProto),
            12: Field("output", MESSAGES, ValueInfoProto),
            13: Field("value_info", BYTES_LIST),
            15: Field("sparse_initializer", MESSAGES, SparseTensorProto),
        }
    )


AttributeProto.g = GraphProto()
AttributeProto.FIELDS = by_tag(
    {
        1: Field("name", TEXT),
        2: Field("f", FLOAT),
        3: Field("i", INT64),
        4: Field("s", BYTES),
        5: Field("t", MESSAGE, TensorProto),
        6: Field("g", MESSAGE, GraphProto),
        7: Field("floats", FLOATS),
        8: Field("ints", INT64S),
        9: Field("strings", BYTES_LIST),
        10: Field("tensors", MESSAGES, TensorProto),
        11: Field("graphs", MESSAGES, GraphProto),
        14: Field("tp", MESSAGE, TypeProto),
        15: Field("type_protos", MESSAGES, TypeProto),
        20: Field("type", ENUM, range(len(AttributeProto.KINDS))),
        21: Field("ref_attr_name", TEXT),
        22: Field("sparse_tensor", MESSAGE, SparseTensorProto),
        23: Field("sparse_tensors", MESSAGES, SparseTensorProto),
    }
)


class FunctionProto(Message):
    """A local function."""

    name: Text = ""
    input: Sequence[Text] = ()
    output: Sequence[Text] = ()
    attribute: Sequence[Text] = ()
    attribute_proto: Sequence[AttributeProto] = ()
    node: Sequence[NodeProto] = ()
    opset_import: Sequence[OperatorSetIdProto] = ()
    domain: Text = ""
    overload: Text = ""
    FIELDS = by_tag(
        {
            1: Field("name", TEXT),
            4: Field("input", TEXTS),
            5: Field("output", TEXTS),
            6: Field("attribute", TEXTS),
            7: Field("node", MESSAGES, NodeProto),
            9: Field("opset_import", MESSAGES, OperatorSetIdProto),
            10: Field("domain", TEXT),
            11: Field("attribute_proto", MESSAGES, AttributeProto),
            13: Field("overload", TEXT),
        }
    )


class ModelProto(Message):
    """A model."""

    ir_version: int = 0
    producer_name: Text = ""
    producer_version: Text = ""
    domain: Text = ""
    model_version: int = 0
    doc_string: Text = ""
    graph: GraphProto = GraphProto()
    opset_import: Sequence[OperatorSetIdProto] = ()
    metadata_props: Sequence[StringStringEntryProto] = ()
    functions: Sequence[FunctionProto] = ()
    FIELDS = by_tag(
        {
            1: Field("ir_version", INT64),
            2: Field("producer_name", TEXT),
            3: Field("producer_version", TEXT),
            4: Field("domain", TEXT),
            5: Field("model_version", INT64),
            6: Field("doc_string", TEXT),
            7: Field("graph", MESSAGE, GraphProto),
            8: Field("opset_import", MESSAGES, OperatorSetIdProto),
            14: Field("metadata_props", MESSAGES, StringStringEntryProto),
            25: Field("functions", MESSAGES, FunctionProto),
        }
    )
