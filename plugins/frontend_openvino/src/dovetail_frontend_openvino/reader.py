"""Bytes to `Model`: the file, XML, layers, then the graph."""

import re
from pathlib import Path

from dovetail.frontend import FormatError, GraphError, Model, ModelSource, OutOfMemory, validate
from dovetail_frontend_openvino.emit import ONNX_VERSION
from dovetail_frontend_openvino.layers import read_net
from dovetail_frontend_openvino.link import Linker
from dovetail_frontend_openvino.markup import parse
from dovetail_frontend_openvino.weights import Weights

__all__ = ["read"]

_LIMIT = 2**28
_FOREIGN = {
    b"\x89PNG": "a PNG image",
    b"PK\x03\x04": "a ZIP archive",
    b"version https://git-lfs": "a Git-LFS pointer, not the file itself (run: git lfs pull)",
}
_HTML = re.compile(rb"\s*<(!doctype html|html)", re.IGNORECASE)


def read(source: ModelSource, weights: Path | bytes | None) -> Model:
    """The model, its operations as ONNX operators that are only named (`UnboundOperator`).

    Raises `FormatError` for a malformed file, `GraphError` for an invalid graph, `OutOfMemory`; each names file, line and layer.
    """
    try:
        return _read(source, weights)
    except (FormatError, GraphError, OutOfMemory) as error:
        if not error.message.startswith(source.name):
            error.message = f"{source.name}: {error.message}"
        raise
    except MemoryError:
        raise OutOfMemory(f"{source.name}: the model does not fit into memory") from None


def _read(source: ModelSource, weights: Path | bytes | None) -> Model:
    content = source.read(_LIMIT)
    what = next((what for start, what in _FOREIGN.items() if content.startswith(start)), None)
    if what is None and _HTML.match(content):
        what = "an HTML page"
    if what is not None:
        raise FormatError(f"this is {what}, not an OpenVINO IR")
    net, version = read_net(parse(content))
    linker = Linker(Weights(source, weights))
    graph = linker.link(net)
    validate(graph)
    opsets = {"": ONNX_VERSION} | dict.fromkeys(sorted(linker.domains), 1)
    metadata = {"openvino.ir_version": str(version), "openvino.name": net.name}
    return Model(graph, opsets, source.name, "xml", metadata, growth=linker.growth)
