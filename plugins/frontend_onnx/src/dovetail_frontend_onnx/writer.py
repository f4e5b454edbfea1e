"""`Model` to bytes: every operator that a graph can name, with open dimensions, sub-graphs and other domains.

Where the package onnx is installed, its schemas tell the kinds of attributes that values leave open, such as empty lists.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any

from dovetail.frontend import Copy, FormatError, Graph, Model, Node, OutOfMemory, UnboundOperator, unique_name
from dovetail_frontend_onnx.context import label
from dovetail_frontend_onnx.messages import IR_VERSION, AttributeProto, GraphProto, ModelProto, NodeProto
from dovetail_frontend_onnx.written_attributes import attribute_proto
from dovetail_frontend_onnx.written_post_ops import expanded
from dovetail_frontend_onnx.written_tensors import tensor_proto, value_info

__all__ = ["write"]

_USUAL_OPSET = 21
"""The version of ONNX's operators for a model that names none: programs of two years read it."""
_OLDEST_IR = 8
"""Since IR version 4 an initializer need not be an input; 8 is what onnx writes for operator sets up to 18."""
_NEWEST_IR_UNASKED = 10
"""Newer versions only say that newer element types may be there; older runtimes refuse them."""
_NEW_TYPES = {"float4_e2m1fn": 11, "float8_e8m0fnu": 12, "int2": 13, "uint2": 13}
_LIMIT = 2**31 - 1
_HEADER = "onnx."
_TEXTS = ("producer_name", "producer_version", "domain", "doc_string")


def write(model: Model) -> bytes:
    """The content of an .onnx file. Raises `FormatError` naming the node that ONNX cannot hold, or for more than 2 GB."""
    opsets = _opsets(model)
    proto = ModelProto(ir_version=_ir_version(model))
    _write_metadata(model.metadata, proto)
    for domain, version in sorted(opsets.items()):
        proto.opset_import.add(domain=domain, version=version)
    try:
        proto.graph.CopyFrom(_graph_proto(model.graph, opsets))
        # An initializer that is also an input is a default that a run may override.
        proto.graph.input.extend(value_info(name, tensor) for name, tensor in model.overridable.items())
        proto.graph.doc_string = model.metadata.get(f"{_HEADER}graph_doc_string", "")
        content: bytes = proto.SerializeToString()
        if any(not output.HasField("type") for output in proto.graph.output):
            content = _with_types(content, model)
    except MemoryError:
        raise OutOfMemory(f"{model.source}: memory is short for its .onnx file") from None
    except ValueError as error:  # protobuf's answer to more than 2 GB
        raise FormatError(f"{model.source} does not fit into one .onnx file: {error}") from None
    if len(content) > _LIMIT:
        raise FormatError(f"{model.source} has {len(content)} bytes; an .onnx file can have {_LIMIT}")
    return content


def _with_types(content: bytes, model: Model) -> bytes:
    """The model with inferred types: ONNX wants one for every output; a graph that was built with open dimensions has none."""
    try:
        from onnx import shape_inference  # here, because few models need it, and none that was read
    except ImportError:
        hint = "close its dimensions (reshape), or pip install dovetail-frontend-onnx[upgrade]"
        raise FormatError(f"{model.source} has outputs of unknown types, which the package onnx infers", hint=hint) from None
    return bytes(shape_inference.infer_shapes(content).SerializeToString())


def _ir_version(model: Model) -> int:
    read = int(model.metadata.get(f"{_HEADER}ir_version", 0))
    types = {t.dtype.value for graph in _graphs(model.graph) for t in graph.types.values()}
    needed = max((_NEW_TYPES[name] for name in types if name in _NEW_TYPES), default=_OLDEST_IR)
    return min(max(min(read, _NEWEST_IR_UNASKED) if needed <= _NEWEST_IR_UNASKED else read, needed), int(IR_VERSION))


def _graphs(graph: Graph) -> Iterable[Graph]:
    yield graph
    for node in graph.nodes:
        for inner in node.op.subgraphs:
            yield from _graphs(inner)


def _write_metadata(metadata: Mapping[str, str], proto: ModelProto) -> None:
    header = {key.removeprefix(_HEADER): value for key, value in metadata.items() if key.startswith(_HEADER)}
    for name in _TEXTS:
        setattr(proto, name, header.get(name, ""))
    proto.producer_name = proto.producer_name or "dovetail"
    if header.get("model_version"):
        proto.model_version = int(header["model_version"])
    for key, value in metadata.items():
        if not key.startswith(_HEADER):
            proto.metadata_props.add(key=key, value=value)


# --- versions --------------------------------------------------------------------------------------------------------


def _opsets(model: Model) -> dict[str, int]:
    """Domain -> one version for all its nodes. Raises `FormatError` naming a node that means something else in it."""
    nodes = [node for graph in _graphs(model.graph) for node in graph.nodes]
    domains = {_domain(node) for node in nodes}
    found = {domain: version for domain, version in model.opsets.items() if domain in domains}
    if "" in domains and not any(isinstance(node.op, UnboundOperator) for node in nodes):
        # Built in Python, of the newest definitions: the first version that has them all may be one that few programs read.
        found.setdefault("", _USUAL_OPSET)
    for node in nodes:
        found[_domain(node)] = max(found.get(_domain(node), 1), _version(node))
    for node in nodes:
        _check_version(node, found[_domain(node)])
    return found or {"": _USUAL_OPSET}


def _domain(node: Node) -> str:
    """The domain in the file: a copy is an Identity there."""
    return "" if isinstance(node.op, Copy) else node.op.domain


def _version(node: Node) -> int:
    if isinstance(node.op, Copy):
        return 13
    if isinstance(node.op, UnboundOperator):
        return node.op.version
    if type(node.op).__name__.rpartition("_")[2] == str(node.op.since):
        raise FormatError(f"node {node} has the definition of version {node.op.since}, which newer ones replace")
    return node.op.since


def _check_version(node: Node, version: int) -> None:
    if isinstance(node.op, UnboundOperator) and node.op.version != version:
        then, now = (_schema(node.op.domain, node.op.op_type, v) for v in (node.op.version, version))
        same = then is not None and now is not None and then.since_version == now.since_version
        if not (same or node.op.domain):
            raise FormatError(
                f"node {node} is of version {node.op.version} of its operator set, others are of {version}, where it differs",
                hint="onnx.version_converter brings a model to one version",
            )


@cache
def _schema(domain: str, op_type: str, version: int) -> Any:
    """ONNX's definition; None for other operators, and without the package onnx."""
    with suppress(ImportError):
        from onnx import defs  # here, because reading models does without it

        with suppress(defs.SchemaError):
            return defs.get_schema(op_type, version, domain)
    return None


# --- graphs ----------------------------------------------------------------------------------------------------------


def _graph_proto(graph: Graph, opsets: Mapping[str, int]) -> GraphProto:
    proto = GraphProto(name=graph.name)
    proto.input.extend(value_info(name, graph.types.get(name)) for name in graph.inputs)
    proto.output.extend(value_info(name, graph.types.get(name)) for name in graph.outputs)
    for name, array in graph.constants.items():
        proto.initializer.append(tensor_proto(array, name))
    written = {*graph.inputs, *graph.outputs, *graph.constants}
    declared = (name for node in graph.nodes for name in node.writes if name in graph.types and name not in written)
    proto.value_info.extend(value_info(name, graph.types[name]) for name in declared)
    taken = {*written, *graph.types, *(name for node in graph.nodes for name in (*node.inputs, *node.outputs))}
    free = partial(unique_name, taken=taken)
    for node in graph.nodes:
        proto.node.extend(_node_proto(part, opsets) for part in expanded(node, free, opsets.get("", 13)))
    return proto


def _node_proto(node: Node, opsets: Mapping[str, int]) -> NodeProto:
    domain, op_type = _domain(node), "Identity" if isinstance(node.op, Copy) else node.op.op_type
    proto = NodeProto(name=node.name, op_type=op_type, domain=domain, input=node.inputs, output=node.outputs)
    schema = _schema(domain, op_type, opsets.get(domain, 1))
    for name, value in _attributes(node, schema).items():
        wanted: int | None = _TYPE_ATTRIBUTES.get((op_type, name)) if domain == "" else None
        if schema is not None and name in schema.attributes:
            wanted = int(schema.attributes[name].type.value)
        try:
            proto.attribute.append(attribute_proto(name, value, wanted, lambda graph: _graph_proto(graph, opsets)))
        except FormatError as error:
            error.message = f"{label(node.name, domain, op_type)}: {error.message}"
            raise
    return proto


def _attributes(node: Node, schema: Any) -> Mapping[str, Any]:
    if isinstance(node.op, Copy):
        return {}
    if isinstance(node.op, UnboundOperator):
        return node.op.raw
    # The number of outputs may be an attribute of the class only.
    counted = getattr(node.op, "output_count", "")
    names = [name for name in node.op.attributes if (name != counted if schema is None else name in schema.attributes)]
    return {name: value for name in names if (value := getattr(node.op, name)) is not None}


_TYPE_ATTRIBUTES = {("Optional", "type"): AttributeProto.TYPE_PROTO}
"""Attributes that are types, which are text in a graph."""
