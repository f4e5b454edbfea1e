"""ONNX's protobuf messages, made from the vendored descriptor: reading a model needs protobuf, and not the package onnx."""

import os
import sys
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

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
    "vendored",
]


def vendored(name: str) -> bytes:
    """A file of ONNX in this package, in a zip archive too. `pkgutil` takes 0.5 ms to import, `importlib.resources` 4."""
    loader: Any = sys.modules[__name__].__loader__
    content: bytes = loader.get_data(os.path.join(os.path.dirname(__file__), "vendor", "onnx", name))
    return content


def _messages() -> dict[str, Any]:
    """Message classes by name, and the newest IR version.

    The pool is not protobuf's default one: a package onnx of another version, with another descriptor of the same name, may be
    imported beside.
    """
    pool = DescriptorPool()
    pool.AddSerializedFile(vendored("onnx-ml.binpb"))
    found = pool.FindFileByName("onnx/onnx-ml.proto")
    classes = {name: GetMessageClass(descriptor) for name, descriptor in found.message_types_by_name.items()}
    return {**classes, "IR_VERSION": found.enum_types_by_name["Version"].values_by_name["IR_VERSION"].number}


if not TYPE_CHECKING:
    _found = _messages()
    globals().update({name: _found[name] for name in __all__ if name in _found})
