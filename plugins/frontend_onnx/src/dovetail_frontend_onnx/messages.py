"""ONNX's protobuf messages without the package around them: `import onnx` takes longer than reading most models does."""

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import (
        IR_VERSION,
        AttributeProto,
        FunctionProto,
        GraphProto,
        ModelProto,
        NodeProto,
        OperatorSetIdProto,
        SparseTensorProto,
        TensorProto,
        TypeProto,
        ValueInfoProto,
    )

__all__ = [
    "IR_VERSION",
    "AttributeProto",
    "FunctionProto",
    "GraphProto",
    "ModelProto",
    "NodeProto",
    "OperatorSetIdProto",
    "SparseTensorProto",
    "TensorProto",
    "TypeProto",
    "ValueInfoProto",
]

_MODULE = "onnx.onnx_ml_pb2"


def _messages() -> ModuleType:
    """The module that protobuf generated. A later `import onnx` gets the same classes: protobuf keeps one for a description."""
    package = None if _MODULE in sys.modules else find_spec("onnx")
    found = PathFinder.find_spec(_MODULE, package.submodule_search_locations) if package is not None else None
    if found is None or found.loader is None:
        return import_module(_MODULE)
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


if not TYPE_CHECKING:
    _found = _messages()
    globals().update({name: getattr(_found, name) for name in __all__})
