"""Messages of protobuf that kserve's protocol file lacks, made from tables of their fields."""

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["Field", "message_classes"]

Field = tuple[str, int, str]
"""Name, number and type, which is a scalar type of protobuf or a message; `[]` after it for repeated fields."""


def message_classes(package: str, messages: Mapping[str, Sequence[Field]]) -> dict[str, Any]:
    """The classes of messages by name."""
    file = descriptor_pb2.FileDescriptorProto(name="dovetail.proto", package=package, syntax="proto3")
    for message, fields in messages.items():
        described = file.message_type.add(name=message)
        for field in fields:
            _add_field(described, field, package if field[2].removesuffix("[]") in messages else "")
    pool = descriptor_pool.DescriptorPool()  # other files define messages of these names in the default one
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def _add_field(message: descriptor_pb2.DescriptorProto, field: Field, package: str) -> None:
    name, number, kind = field
    proto = descriptor_pb2.FieldDescriptorProto
    label = proto.LABEL_REPEATED if kind.endswith("[]") else proto.LABEL_OPTIONAL
    kind = kind.removesuffix("[]")
    if package:
        message.field.add(name=name, number=number, label=label, type=proto.TYPE_MESSAGE, type_name=f".{package}.{kind}")
    else:
        message.field.add(name=name, number=number, label=label, type=proto.Type.Value(f"TYPE_{kind.upper()}"))
