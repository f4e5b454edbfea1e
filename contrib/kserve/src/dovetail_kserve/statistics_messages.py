"""The messages of `ModelStatistics`, a method of the statistics extension that kserve's protocol file lacks.

Names and numbers of fields are those of the extension; counts of responses, of memory and of batches are left out.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["StatisticsRequest", "StatisticsResponse"]

_Field = tuple[str, int, str]
"""Name, number and type, which is a scalar type of protobuf or a message; `[]` after it for repeated fields."""

_MESSAGES: dict[str, tuple[_Field, ...]] = {
    "ModelStatisticsRequest": (("name", 1, "string"), ("version", 2, "string")),
    "StatisticDuration": (("count", 1, "uint64"), ("ns", 2, "uint64")),
    "InferStatistics": (
        ("success", 1, "StatisticDuration"),
        ("fail", 2, "StatisticDuration"),
        ("queue", 3, "StatisticDuration"),
        ("compute_input", 4, "StatisticDuration"),
        ("compute_infer", 5, "StatisticDuration"),
        ("compute_output", 6, "StatisticDuration"),
    ),
    "InferBatchStatistics": (("batch_size", 1, "uint64"),),
    "ModelStatistics": (
        ("name", 1, "string"),
        ("version", 2, "string"),
        ("last_inference", 3, "uint64"),
        ("inference_count", 4, "uint64"),
        ("execution_count", 5, "uint64"),
        ("inference_stats", 6, "InferStatistics"),
        ("batch_stats", 7, "InferBatchStatistics[]"),
    ),
    "ModelStatisticsResponse": (("model_stats", 1, "ModelStatistics[]"),),
}

_PACKAGE = "inference"


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="dovetail_statistics.proto", package=_PACKAGE, syntax="proto3")
    for message, fields in _MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, number, kind in fields:
            _add_field(described, name, number, kind)
    return file


def _add_field(message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str) -> None:
    proto = descriptor_pb2.FieldDescriptorProto
    label = proto.LABEL_REPEATED if kind.endswith("[]") else proto.LABEL_OPTIONAL
    kind = kind.removesuffix("[]")
    if kind in _MESSAGES:
        message.field.add(name=name, number=number, label=label, type=proto.TYPE_MESSAGE, type_name=f".{_PACKAGE}.{kind}")
    else:
        message.field.add(name=name, number=number, label=label, type=proto.Type.Value(f"TYPE_{kind.upper()}"))


# A pool of its own: other files define messages of these names in the default one.
_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_file())


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


StatisticsRequest = _class("ModelStatisticsRequest")
StatisticsResponse = _class("ModelStatisticsResponse")
