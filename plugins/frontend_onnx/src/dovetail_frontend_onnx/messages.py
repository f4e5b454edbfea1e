"""ONNX's protobuf messages, made from the vendored descriptor: reading a model needs protobuf, and not the package onnx."""

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

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
    pool, class_of = _protobuf()
    pool.AddSerializedFile(vendored("onnx-ml.binpb"))
    found = pool.FindFileByName("onnx/onnx-ml.proto")
    classes = {name: class_of(descriptor) for name, descriptor in found.message_types_by_name.items()}
    return {**classes, "IR_VERSION": found.enum_types_by_name["Version"].values_by_name["IR_VERSION"].number}


def _protobuf() -> tuple[Any, Callable[[Any], Any]]:
    """An empty pool of descriptors, and the function that makes the class of a descriptor.

    Both come from protobuf's C module, where that is the one it runs by. Its `descriptor_pool` and `message_factory` give the
    same, but import protobuf's implementation in Python and its text format: 9 ms in place of 4.
    """
    if os.environ.get("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "upb") == "upb":
        try:
            from google._upb._message import DescriptorPool, MessageMeta
        except ImportError:  # no C module for this Python, or another version's
            pass
        else:
            return DescriptorPool(), partial(_class_in_c, MessageMeta)
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    return DescriptorPool(), GetMessageClass


def _class_in_c(meta: Any, descriptor: Any) -> Any:
    """As `GetMessageClass`. The C module looks for the classes of fields, so nested ones are made too."""
    for nested in descriptor.nested_types:
        _class_in_c(meta, nested)
    return meta(descriptor.name, (Message,), {"DESCRIPTOR": descriptor, "__module__": None})


if not TYPE_CHECKING:
    _found = _messages()
    globals().update({name: _found[name] for name in __all__ if name in _found})
