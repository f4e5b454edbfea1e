"""ModelProto's parts as plain Python: checked one by one, not yet linked to each other.

A template is what a file says once. `link` turns the main graph's into nodes directly, and a local function's as often as it
is called.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.frontend import (
    Dim,
    FormatError,
    GraphError,
    MapType,
    OptionalType,
    OutOfMemory,
    SequenceType,
    TensorType,
    UnboundOperator,
    printable,
)
from dovetail_frontend_onnx.context import Context, label, located
from dovetail_frontend_onnx.messages import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)
from dovetail_frontend_onnx.opsets import NEWEST_OPSET, OLDEST_OPSET
from dovetail_frontend_onnx.tensors import data_type, read_dims, read_sparse, read_tensor

__all__ = [
    "Attribute",
    "FunctionTemplate",
    "GraphTemplate",
    "NodeTemplate",
    "Reference",
    "read_function",
    "read_graph",
    "read_opsets",
    "value_names",
]


_KIND = AttributeProto.AttributeType
_OWN = ("", "ai.onnx")
_VALUE_FIELDS = {
    _KIND.FLOAT: "f",
    _KIND.INT: "i",
    _KIND.STRING: "s",
    _KIND.TENSOR: "t",
    _KIND.GRAPH: "g",
    _KIND.SPARSE_TENSOR: "sparse_tensor",
    _KIND.TYPE_PROTO: "tp",
    _KIND.FLOATS: "floats",
    _KIND.INTS: "ints",
    _KIND.STRINGS: "strings",
    _KIND.TENSORS: "tensors",
    _KIND.GRAPHS: "graphs",
    _KIND.SPARSE_TENSORS: "sparse_tensors",
    _KIND.TYPE_PROTOS: "type_protos",
}
_NOT_VALUES = {"name", "ref_attr_name", "doc_string", "type"}
_MUST_BE_THERE = (_KIND.TENSOR, _KIND.GRAPH, _KIND.SPARSE_TENSOR, _KIND.TYPE_PROTO)


class Attribute(NamedTuple):
    """An attribute with its `AttributeProto.AttributeType`. Graphs are `GraphTemplate`, or `Graph` once they are linked."""

    kind: int
    value: Any


@dataclass(frozen=True, slots=True)
class Reference:
    """In a function: an attribute that takes the value of the function's attribute `name`."""

    name: str


@dataclass(slots=True)
class NodeTemplate:
    """A NodeProto. `op` is kept once it is known, if it is the same for every call of the function."""

    name: str
    domain: str
    op_type: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    op: UnboundOperator | None = None

    def __str__(self) -> str:
        return label(self.name, self.domain, self.op_type)


@dataclass(frozen=True, slots=True)
class GraphTemplate:
    """A GraphProto. `names` are the node names given in the file if some nodes have none. `nodes` may be used up by reading."""

    name: str
    nodes: Iterable[NodeTemplate]
    names: frozenset[str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, NDArray[Any]]
    types: Mapping[str, TensorType]


@dataclass(frozen=True, slots=True)
class FunctionTemplate:
    """A FunctionProto. `attributes` have no default, `defaults` have one; `values` are all value names, also in sub-graphs."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: frozenset[str]
    defaults: Mapping[str, Attribute]
    nodes: tuple[NodeTemplate, ...]
    names: frozenset[str]
    opsets: Mapping[str, int]
    values: frozenset[str]


def read_opsets(imports: Iterable[OperatorSetIdProto]) -> dict[str, int]:
    """Domain -> version. Raises `FormatError` for two versions of one domain, and for a version of ONNX that is not known."""
    found: dict[str, int] = {}
    for item in imports:
        domain = _domain(_text(item.domain, "a domain in opset_import"))
        if found.setdefault(domain, item.version) != item.version:
            raise FormatError(f"opset_import has the domain '{printable(domain)}' as version {found[domain]} and {item.version}")
        newest = NEWEST_OPSET if domain == "" else 2**31 - 1
        if not 1 <= item.version <= newest:
            raise FormatError(
                f"opset_import asks for version {item.version} of the domain '{printable(domain) or 'ai.onnx'}'",
                hint=f"accepted: 1 to {newest}; onnx.version_converter changes a model's version",
            )
    if "" in found:
        found[""] = max(found[""], OLDEST_OPSET)  # operators of an older set have the same definitions there (`is_old`)
    return found


def read_graph(proto: GraphProto, context: Context, *, main: bool = False) -> GraphTemplate:
    """A graph and its sub-graphs. The nodes of the main graph are read when they are iterated over, once."""
    constants = _constants(proto, context)
    types = _declared_types(proto)
    for item in proto.input:  # last: an output may be an input, and declare less
        name = _text(item.name, "a graph input's name")
        declared = _input_type(item, constants.get(name))
        if declared is not None:
            types[name] = declared
    nodes = (_read_node(node, context) for node in proto.node)
    return GraphTemplate(
        printable(proto.name) or "graph",
        nodes if main else tuple(nodes),
        _names(proto.node),
        # An initializer that is also an input gives its default value (IR 3 wanted all of them listed): see `Model.overridable`.
        tuple(item.name for item in proto.input if item.name not in constants),
        tuple(_text(item.name, "a graph output's name") for item in proto.output),
        constants,
        types,
    )


def read_function(proto: FunctionProto, context: Context) -> FunctionTemplate:
    """A local function. Raises `FormatError`."""
    inputs = tuple(_text(name, "an input's name") for name in proto.input)
    outputs = tuple(_text(name, "an output's name") for name in proto.output)
    for names, what in ((inputs, "inputs"), (outputs, "outputs")):
        if "" in names or len(set(names)) < len(names):
            raise GraphError(f"the {what} have an empty name, or one twice")
    return FunctionTemplate(
        inputs,
        outputs,
        frozenset(proto.attribute),
        _read_attributes(proto.attribute_proto, context),
        tuple(_read_node(node, context) for node in proto.node),
        _names(proto.node),
        read_opsets(proto.opset_import),
        frozenset({*inputs, *outputs, *value_names(proto.node)}),
    )


def value_names(nodes: Iterable[NodeProto]) -> set[str]:
    """Every value name that nodes and their sub-graphs write down."""
    found: set[str] = set()
    waiting: list[Iterable[NodeProto]] = [nodes]
    while waiting:
        for node in waiting.pop():
            found.update(node.input, node.output)
            for attribute in node.attribute:
                for graph in (attribute.g, *attribute.graphs) if attribute.type in (_KIND.GRAPH, _KIND.GRAPHS) else ():
                    found.update(item.name for item in (*graph.input, *graph.output, *graph.initializer))
                    found.update(sparse.values.name for sparse in graph.sparse_initializer)
                    waiting.append(graph.node)
    return found - {""}


def _names(nodes: Iterable[NodeProto]) -> frozenset[str]:
    names = {node.name for node in nodes}
    return frozenset(names) if "" in names else frozenset()


def _constants(proto: GraphProto, context: Context) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    for name, read, tensor in _initializers(proto):
        where = f"initializer '{printable(name)}'"
        if not isinstance(name, str) or not name:
            raise FormatError(f"{where}: the name is empty or not UTF-8")
        if name in found:
            raise GraphError(f"{where} is there twice")
        try:
            found[name] = read(tensor, context)
        except (FormatError, OutOfMemory) as error:
            raise located(where, error) from None
    return found


def _initializers(proto: GraphProto) -> Iterator[tuple[str, Any, Any]]:
    for tensor in proto.initializer:
        yield tensor.name, read_tensor, tensor
    for sparse in proto.sparse_initializer:
        yield sparse.values.name, read_sparse, sparse


def _input_type(item: ValueInfoProto, default: NDArray[Any] | None) -> TensorType | None:
    """The declared type; None where a sub-graph declares none. Raises `FormatError` for a sequence of sequences and its kin."""
    try:
        declared = _value_type(item.type) if item.HasField("type") else None
    except FormatError as error:
        raise located(f"input '{printable(item.name)}'", error) from None
    if default is not None and declared is not None:
        _check_default(item.name, declared, TensorType.of(default))
    return declared


def _check_default(name: str, declared: TensorType, actual: TensorType) -> None:
    dims = declared.shape if declared.shape is not None else actual.dims
    fits = len(dims) == actual.rank and all(not isinstance(d, int) or d == a for d, a in zip(dims, actual.dims, strict=True))
    if declared.dtype is not actual.dtype or not fits:
        raise FormatError(f"input '{printable(name)}' is declared as {declared}; its initializer is {actual}")


def _declared_types(proto: GraphProto) -> dict[str, TensorType]:
    """The declared types of outputs, and of inputs and outputs of operators outside ONNX's own domain: nobody else may know.

    Nothing is checked: types are inferred, where they can be.
    """
    foreign = {name for node in proto.node if node.domain not in _OWN for name in (*node.input, *node.output)}
    found = {}
    types: dict[bytes, TensorType] = {}  # most values have one of a few
    for item in (*(item for item in proto.value_info if item.name in foreign), *proto.output):
        if not item.name or not item.HasField("type"):
            continue
        content = item.type.SerializeToString()
        try:
            types[content] = found[_text(item.name, "a value's name")] = types.get(content) or _value_type(item.type)
        except FormatError:
            continue
    return found


def _value_type(proto: TypeProto) -> TensorType:
    """A tensor, a map from int64 or strings to plain values, a sequence of either, or an optional tensor or sequence of them."""
    kind = proto.WhichOneof("value")
    if kind == "optional_type" and not _is(proto.optional_type.elem_type, "optional_type"):
        present = _value_type(proto.optional_type.elem_type)
        if getattr(present, "keys", None) is None:
            return OptionalType(present.dtype, None)
    if kind == "sequence_type" and _is(proto.sequence_type.elem_type, "tensor_type"):
        return SequenceType(_tensor_type(proto.sequence_type.elem_type).dtype, None)
    if kind == "sequence_type" and _is_map(proto.sequence_type.elem_type):
        items = _map_type(proto.sequence_type.elem_type)
        return SequenceType(items.dtype, None, keys=items.keys)
    if _is_map(proto):
        return _map_type(proto)
    if kind != "tensor_type":
        raise FormatError(
            f"the type is {_type_text(proto)}",
            hint="accepted: tensors, sequences of them, optionals of both; maps from int64 or strings, sequences of them",
        )
    return _tensor_type(proto)


def _is_map(proto: TypeProto) -> bool:
    keys = (TensorProto.INT64, TensorProto.STRING)
    return _is(proto, "map_type") and proto.map_type.key_type in keys and _is(proto.map_type.value_type, "tensor_type")


def _map_type(proto: TypeProto) -> MapType:
    values = _tensor_type(proto.map_type.value_type)
    return MapType(values.dtype, None, keys=data_type(proto.map_type.key_type))


def _is(proto: TypeProto, kind: str) -> bool:
    return bool(proto.WhichOneof("value") == kind)


def _tensor_type(proto: TypeProto) -> TensorType:
    tensor = proto.tensor_type
    shape = tuple([_dim(dim) for dim in tensor.shape.dim]) if tensor.HasField("shape") else None
    read_dims([d for d in shape or () if isinstance(d, int)])
    return TensorType(data_type(tensor.elem_type), shape)


def _dim(dim: Any) -> Dim:
    size: int = dim.dim_value
    if size > 0:
        return size
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        # Exporters write -1 for a dimension that is open.
        return size if size == 0 else None
    return _text(dim.dim_param, "a dimension's name") or None if kind else None


def _type_text(proto: TypeProto) -> str:
    """A type in ONNX's notation, such as `seq(tensor(float32))`."""
    opening, depth = "", 0
    while (kind := proto.WhichOneof("value")) in ("sequence_type", "optional_type", "map_type"):
        inner = getattr(proto, kind)
        key = f"{data_type(inner.key_type)}, " if kind == "map_type" else ""
        opening, depth = (
            f"{opening}{ {'sequence_type': 'seq', 'optional_type': 'optional', 'map_type': 'map'}[kind] }({key}",
            depth + 1,
        )
        proto = inner.value_type if kind == "map_type" else inner.elem_type
    leaf = (
        f"tensor({data_type(proto.tensor_type.elem_type)})"
        if kind == "tensor_type"
        else str(kind or "not given").replace("_type", "")
    )
    return opening + leaf + ")" * depth


def _read_node(proto: NodeProto, context: Context) -> NodeTemplate:
    domain, op_type, overload = proto.domain, proto.op_type, proto.overload
    name, inputs, outputs = proto.name, tuple(proto.input), tuple(proto.output)
    # protobuf hands out names that are not UTF-8 as bytes.
    if bytes in map(type, (name, domain, op_type, overload, *inputs, *outputs)) or not op_type:
        problem = "a name is not UTF-8" if op_type else "op_type is missing"
        raise FormatError(f"{label(name, printable(domain), printable(op_type))}: {problem}")
    template = NodeTemplate(name, _domain(domain), op_type, overload, inputs, outputs, {})
    if proto.attribute:
        try:
            template.attributes = _read_attributes(proto.attribute, context)
        except (FormatError, GraphError, OutOfMemory) as error:
            raise located(str(template), error) from None
    return template


def _read_attributes(protos: Iterable[AttributeProto], context: Context) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    for proto in protos:
        name = _text(proto.name, "an attribute's name")
        if not name or name in found:
            raise FormatError(f"the attribute '{printable(name)}' is there twice" if name else "an attribute has no name")
        try:
            found[name] = Attribute(proto.type, _attribute_value(proto, context))
        except (FormatError, GraphError, OutOfMemory) as error:
            raise located(f"attribute '{printable(name)}'", error) from None
    return found


def _attribute_value(proto: AttributeProto, context: Context) -> Any:
    field = _VALUE_FIELDS.get(proto.type)
    if field is None:
        raise FormatError("the attribute has no type that is known", hint="accepted: the AttributeProto.AttributeType of ONNX")
    others = [other.name for other, _ in proto.ListFields() if other.name not in _NOT_VALUES and other.name != field]
    if others:
        raise FormatError(f"the type is {_KIND.Name(proto.type)}, but there is a value in {others[0]!r}")
    if proto.ref_attr_name:
        return Reference(_text(proto.ref_attr_name, "ref_attr_name"))
    if proto.type in _MUST_BE_THERE and not proto.HasField(field):
        raise FormatError(f"the type is {_KIND.Name(proto.type)}, but its value is missing")
    return _convert(proto.type, getattr(proto, field), context)


def _convert(kind: int, value: Any, context: Context) -> Any:
    """A value of a singular kind, or a tuple for a repeated one."""
    convert = _CONVERT.get(kind)
    if convert is not None:
        return convert(value, context)
    convert = _CONVERT[_SINGULAR[kind]]
    return tuple(convert(item, context) for item in value)


# In tables, because protobuf looks the numbers of an enumeration up by a call of Python.
_CONVERT: dict[int, Callable[[Any, Context], Any]] = {
    _KIND.FLOAT: lambda value, _: value,
    _KIND.INT: lambda value, _: value,
    _KIND.FLOATS: lambda values, _: tuple(values),
    _KIND.INTS: lambda values, _: tuple(values),
    _KIND.STRING: lambda value, _: value.decode("utf-8", "surrogateescape"),
    _KIND.STRINGS: lambda values, _: tuple([value.decode("utf-8", "surrogateescape") for value in values]),
    _KIND.TENSOR: read_tensor,
    _KIND.GRAPH: read_graph,
    _KIND.SPARSE_TENSOR: read_sparse,
    _KIND.TYPE_PROTO: lambda value, _: _type_text(value),
}
_SINGULAR: dict[int, int] = {
    _KIND.TENSORS: _KIND.TENSOR,
    _KIND.GRAPHS: _KIND.GRAPH,
    _KIND.SPARSE_TENSORS: _KIND.SPARSE_TENSOR,
    _KIND.TYPE_PROTOS: _KIND.TYPE_PROTO,
}


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _text(value: str | bytes, what: str) -> str:
    if isinstance(value, bytes):
        raise FormatError(f"{what} is not UTF-8: '{printable(value)}'")
    return value
