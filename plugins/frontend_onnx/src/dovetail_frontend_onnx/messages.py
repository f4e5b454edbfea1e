"""ONNX's protobuf messages, made from the vendored descriptor: writing a model needs protobuf, and not the package onnx."""

from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from dovetail_frontend_onnx.opsets import vendored

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
