"""Python values to AttributeProto: by the operator's schema where ONNX has one, else by the value."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dovetail.frontend import DType, FormatError, Graph
from dovetail_frontend_onnx.messages import AttributeProto, GraphProto, TypeProto
from dovetail_frontend_onnx.written_tensors import tensor_proto

__all__ = ["attribute_proto"]

WriteGraph = Callable[[Graph], GraphProto]

_KIND = AttributeProto.AttributeType
_BY_TYPE: Mapping[type, int] = {
    bool: _KIND.INT,
    int: _KIND.INT,
    float: _KIND.FLOAT,
    str: _KIND.STRING,
    np.ndarray: _KIND.TENSOR,
    Graph: _KIND.GRAPH,
}
_LISTS: Mapping[int, int] = {
    _KIND.INT: _KIND.INTS,
    _KIND.FLOAT: _KIND.FLOATS,
    _KIND.STRING: _KIND.STRINGS,
    _KIND.TENSOR: _KIND.TENSORS,
    _KIND.GRAPH: _KIND.GRAPHS,
}
_CONTAINERS = {"seq": "sequence_type", "optional": "optional_type"}


def attribute_proto(name: str, value: Any, wanted: int | None, write_graph: WriteGraph) -> AttributeProto:
    """An attribute of the kind that the schema wants; None without a schema. Raises `FormatError`."""
    value = _plain(value)
    kind = _kind(value) if wanted is None else wanted
    proto = AttributeProto(name=name)
    proto.type = kind  # type: ignore[assignment]  # a number of the enumeration
    try:
        _set(proto, kind, value, write_graph)
    except (TypeError, ValueError) as error:
        raise FormatError(f"attribute {name!r} is {value!r:.60}, which is not {_KIND.Name(kind)}: {error}") from None
    return proto


def _plain(value: Any) -> Any:
    if isinstance(value, DType):
        return value.onnx
    if isinstance(value, np.generic):
        return value.item()
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def _kind(value: Any) -> int:
    if isinstance(value, tuple):
        kinds = {_kind(item) for item in value} or {_KIND.INT}
        if kinds == {_KIND.INT, _KIND.FLOAT}:
            kinds = {_KIND.FLOAT}
        if len(kinds) == 1 and (kind := kinds.pop()) in _LISTS:
            return _LISTS[kind]
    for base, kind in _BY_TYPE.items():
        if isinstance(value, base):
            return kind
    raise FormatError(f"an attribute is {value!r:.60} ({type(value).__name__}), which ONNX cannot hold")


def _set(proto: AttributeProto, kind: int, value: Any, write_graph: WriteGraph) -> None:
    if kind == _KIND.FLOAT:
        proto.f = value
    elif kind == _KIND.INT:
        proto.i = int(value)
    elif kind == _KIND.STRING:
        proto.s = _encoded(value)
    elif kind == _KIND.TENSOR:
        proto.t.CopyFrom(tensor_proto(np.asarray(value)))
    elif kind == _KIND.GRAPH:
        proto.g.CopyFrom(write_graph(value))
    elif kind == _KIND.TYPE_PROTO:
        proto.tp.CopyFrom(_parsed_type(value))
    elif kind == _KIND.FLOATS:
        proto.floats.extend(value)
    elif kind == _KIND.INTS:
        proto.ints.extend(map(int, value))
    elif kind == _KIND.STRINGS:
        proto.strings.extend(map(_encoded, value))
    elif kind == _KIND.TENSORS:
        proto.tensors.extend(tensor_proto(np.asarray(item)) for item in value)
    elif kind == _KIND.GRAPHS:
        proto.graphs.extend(map(write_graph, value))
    else:
        raise TypeError("attributes of this kind are not written")


def _encoded(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"{text!r:.60} is not text")
    return text.encode("utf-8", "surrogateescape")


def _parsed_type(text: str) -> TypeProto:
    """The type in ONNX's notation as the reader keeps it: `seq(tensor(float32))`."""
    proto = TypeProto()
    head, _, inner = str(text).partition("(")
    if head == "tensor":
        proto.tensor_type.elem_type = DType.of(inner.rstrip(")")).onnx
    elif head in _CONTAINERS:
        getattr(proto, _CONTAINERS[head]).elem_type.CopyFrom(_parsed_type(inner.removesuffix(")")))
    else:
        raise ValueError("the type is not a tensor, sequence or optional")
    return proto
