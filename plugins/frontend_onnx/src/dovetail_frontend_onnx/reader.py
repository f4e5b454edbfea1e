"""Bytes to `Model`: the file, protobuf, the header, then templates, then the graph."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from google.protobuf.message import DecodeError

from dovetail.dataclass import dataclass, field
from dovetail.frontend import (
    FormatError,
    GraphError,
    MappedFile,
    Model,
    ModelSource,
    OutOfMemory,
    TensorType,
    printable,
    validate,
)
from dovetail_frontend_onnx.context import Context, located
from dovetail_frontend_onnx.cost import check_cost
from dovetail_frontend_onnx.external import ExternalData
from dovetail_frontend_onnx.link import FunctionId, Linker, function_label
from dovetail_frontend_onnx.messages import IR_VERSION, FunctionProto, ModelProto
from dovetail_frontend_onnx.opsets import is_old, versions
from dovetail_frontend_onnx.parts import read_parts
from dovetail_frontend_onnx.sniff import HEAD, foreign, why_no_protobuf
from dovetail_frontend_onnx.templates import FunctionTemplate, read_function, read_graph, read_opsets, value_names

__all__ = ["read"]

PROTOBUF_LIMIT = 2**31 - 1


def read(source: ModelSource, parse_limit: int | None = None) -> Model:
    """The model, its operators named (`UnboundOperator`), its local functions expanded, its external data read.

    Initializers that are also inputs are constants, and in `Model.overridable`.
    `parse_limit` replaces the bytes that parsing may take, which otherwise follow from the size of the file.
    Raises `FormatError` for a malformed file, `GraphError` for an invalid graph, `OutOfMemory`; each names file and node.
    """
    external = ExternalData(source)
    try:
        return _read(*_parse(source, external, parse_limit))
    except (FormatError, GraphError, OutOfMemory) as error:
        if not error.message.startswith(source.name):
            error.message = f"{source.name}: {error.message}"
        raise
    except UnicodeDecodeError:  # from protobuf's pure-Python implementation; the others hand out bytes
        raise FormatError(f"{source.name}: a name in the file is not UTF-8") from None
    except MemoryError:
        raise OutOfMemory(f"{source.name}: the model does not fit into memory") from None
    finally:
        external.close()


def _parse(source: ModelSource, external: ExternalData, limit: int | None) -> tuple[ModelProto, Context]:
    with source.open(PROTOBUF_LIMIT) as (file, size):
        what = foreign(file.read(HEAD), size)
        if what is not None:
            raise FormatError(f"this is {what}, not an ONNX model")
        file.seek(0)
        mapped = MappedFile.of(source.data, file.fileno()) if isinstance(source.data, Path) else None
        parts = read_parts(file, size, mapped)
        if parts is not None:
            proto = _message(parts.message, size, limit)
            if not is_old(proto):
                return proto, Context(source, external, size, parts.raw_data)
        file.seek(0)
        return _message(file.read(), size, limit), Context(source, external, size)


def _message(content: bytes, size: int, limit: int | None) -> ModelProto:
    check_cost(content, size, limit)
    proto = ModelProto()
    try:
        proto.ParseFromString(content)
    except (DecodeError, RecursionError):
        raise FormatError(why_no_protobuf(content), hint="an ONNX model is one protobuf message, ModelProto") from None
    return proto


def _read(proto: ModelProto, context: Context) -> Model:
    _check_header(proto)
    if is_old(proto):
        proto = _upgraded(proto)
    opsets = read_opsets(proto.opset_import)
    functions = _Functions(context, _function_protos(proto.functions))
    values = _model_values(proto) if proto.functions else set()
    template = read_graph(proto.graph, context, main=True)
    for name in template.inputs:
        if name not in template.types:
            raise FormatError(f"input '{printable(name)}' has no type", hint="only inputs of sub-graphs may leave it out")
    graph = Linker(context, functions.get, values).link(template, opsets)
    validate(graph)
    overridable = {
        item.name: template.types.get(item.name) or TensorType.of(template.constants[item.name])
        for item in proto.graph.input
        if item.name in template.constants
    }
    return Model(graph, opsets, context.source.name, "onnx", _metadata(proto), overridable)


def _upgraded(proto: ModelProto) -> ModelProto:
    try:
        from dovetail_frontend_onnx.upgrade import upgraded  # here, because it needs the package onnx, which is optional
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise FormatError(
            f"the model is of operator set {versions(proto)[0]}, and converting it needs the package onnx",
            hint="pip install dovetail-frontend-onnx[upgrade]",
        ) from None
    return upgraded(proto)


def _check_header(proto: ModelProto) -> None:
    newest = int(IR_VERSION)
    if not 1 <= proto.ir_version <= newest:
        version = f"the IR version is {proto.ir_version}" if proto.HasField("ir_version") else "ir_version is missing"
        raise FormatError(
            version, hint=f"accepted: 1 to {newest}. A newer onnx package may know newer ones; is this an ONNX model?"
        )
    if not proto.HasField("graph"):
        raise FormatError("the model has no graph", hint="is the file complete?")
    if not proto.opset_import:
        raise FormatError("the model has no opset_import", hint="it must say for which operator sets it was written")


def _model_values(proto: ModelProto) -> set[str]:
    graph = proto.graph
    own = {item.name for item in (*graph.input, *graph.output, *graph.initializer)}
    return own | {sparse.values.name for sparse in graph.sparse_initializer} | value_names(graph.node)


def _function_protos(protos: Iterable[FunctionProto]) -> dict[FunctionId, FunctionProto]:
    found: dict[FunctionId, FunctionProto] = {}
    for proto in protos:
        identity = ("" if proto.domain == "ai.onnx" else proto.domain, proto.name, proto.overload)
        if bytes in map(type, identity) or not proto.name:
            raise FormatError(f"a local function of domain '{printable(proto.domain)}' has no name, or one that is not UTF-8")
        if identity in found:
            raise GraphError(f"the local function {function_label(*identity)} is there twice")
        found[identity] = proto
    return found


@dataclass
class _Functions:
    """The local functions of a model, read when they are first called."""

    context: Context
    protos: Mapping[FunctionId, FunctionProto]
    _templates: dict[FunctionId, FunctionTemplate] = field(default_factory=dict)

    def get(self, identity: FunctionId) -> FunctionTemplate | None:
        if identity not in self.protos:
            return None
        if identity not in self._templates:
            try:
                self._templates[identity] = read_function(self.protos[identity], self.context)
            except (FormatError, GraphError) as error:
                raise located(f"local function {function_label(*identity)}", error) from None
        return self._templates[identity]


def _metadata(proto: ModelProto) -> dict[str, str]:
    """The producer's entries by their own keys, and the header's by theirs with `onnx.` in front."""
    header: dict[str, str | bytes | int] = {
        "ir_version": proto.ir_version,
        "producer_name": proto.producer_name,
        "producer_version": proto.producer_version,
        "domain": proto.domain,
        "model_version": proto.model_version,
        "doc_string": proto.doc_string,
        "graph_doc_string": proto.graph.doc_string,
    }
    entries = {_replaced(item.key): _replaced(item.value) for item in proto.metadata_props}
    return entries | {f"onnx.{key}": _replaced(value) for key, value in header.items() if value}


def _replaced(value: str | bytes | int) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
