"""Bytes to `Model`: the file, its messages, the header, then templates, then the graph."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from dovetail.dataclass import dataclass, field
from dovetail.frontend import FormatError, GraphError, Model, ModelSource, OutOfMemory, TensorType, printable, validate
from dovetail_frontend_onnx.context import Context, located
from dovetail_frontend_onnx.external import ExternalData
from dovetail_frontend_onnx.link import FunctionId, Linker, function_label
from dovetail_frontend_onnx.opsets import is_old, versions
from dovetail_frontend_onnx.parts import read_parts
from dovetail_frontend_onnx.protos import IR_VERSION, FunctionProto, ModelProto
from dovetail_frontend_onnx.sniff import HEAD, foreign, why_no_protobuf
from dovetail_frontend_onnx.templates import FunctionTemplate, declared_names, read_function, read_graph, read_opsets, value_names
from dovetail_frontend_onnx.wire_format import Malformed, TooLarge, decode

__all__ = ["read"]

PROTOBUF_LIMIT = 2**31 - 1

_GROWTH = 3
_GROWTH_OF_SMALL = 192 * 2**20
"""A message may take 3 times the size of its file and 192 MiB, but for numbers and strings of attributes: a message of two bytes
takes some hundred in memory. With its content itself and what else is needed, reading takes 4 times and 256 MiB.
"""


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
        path = source.data if isinstance(source.data, Path) else None
        parts = read_parts(file, size, path)
        if parts is not None:
            proto = _message(parts.message, size, limit)
            if not is_old(proto):
                return proto, Context(source, external, size, parts.raw_data)
        file.seek(0)
        content = file.read()
        proto = _message(content, size, limit)
        if is_old(proto):
            _check_header(proto)
            proto = decode(ModelProto, _upgraded(content, versions(proto)[0]))
        return proto, Context(source, external, size)


def _message(content: bytes, size: int, limit: int | None) -> ModelProto:
    limit = _GROWTH_OF_SMALL + _GROWTH * size if limit is None else limit
    try:
        return decode(ModelProto, content, limit)
    except TooLarge:
        raise FormatError(
            f"parsing the {size} bytes would take more than {limit} bytes of memory, so many small messages are in them",
            hint="is this an ONNX model? One that you trust is read with read_model(..., parse_limit=BYTES)",
        ) from None
    except Malformed:
        raise FormatError(why_no_protobuf(content), hint="an ONNX model is one protobuf message, ModelProto") from None


def _read(proto: ModelProto, context: Context) -> Model:
    _check_header(proto)
    opsets = read_opsets(proto.opset_import)
    functions = _Functions(context, _function_protos(proto.functions))
    values = declared_names(proto.graph) | value_names(proto.graph.node) if proto.functions else set()
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


def _upgraded(content: bytes, version: int) -> bytes:
    try:
        from dovetail_frontend_onnx.upgrade import upgraded  # here, because it needs the package onnx, which is optional
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise FormatError(
            f"the model is of operator set {version}, and converting it needs the package onnx",
            hint="pip install dovetail-frontend-onnx[upgrade]",
        ) from None
    return upgraded(content, version)


def _check_header(proto: ModelProto) -> None:
    newest = IR_VERSION
    if not 1 <= proto.ir_version <= newest:
        version = f"the IR version is {proto.ir_version}" if proto.has("ir_version") else "ir_version is missing"
        raise FormatError(
            version, hint=f"accepted: 1 to {newest}. A newer onnx package may know newer ones; is this an ONNX model?"
        )
    if not proto.has("graph"):
        raise FormatError("the model has no graph", hint="is the file complete?")
    if not proto.opset_import:
        raise FormatError("the model has no opset_import", hint="it must say for which operator sets it was written")


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
