"""Initializers that a program gives in place of those in the model's file."""

import os
from collections.abc import Mapping, Set

from dovetail_onnxruntime.exceptions import Fail, InvalidArgument, coded
from dovetail_onnxruntime.values import OrtValue

__all__ = ["with_initializers"]


def with_initializers(model: str | bytes, given: Mapping[str, OrtValue], required: Set[str]) -> str | bytes:
    """The bytes of a model, of a path or bytes, with these values as its initializers. Names that it lacks are for other models.

    What is no model stays as it is, for the reader to refuse. Raises `InvalidArgument` for a value of another type or shape,
    `Fail` for a required name that the model lacks, for other data that cannot be read, or without the package onnx.
    """
    try:
        import onnx  # here, because sessions do without it
        from google.protobuf.message import DecodeError
        from onnx import checker, external_data_helper, numpy_helper
    except ImportError:
        raise coded(Fail, "initializers that programs give need the package onnx: pip install onnx") from None
    try:
        proto = onnx.load_model_from_string(model) if isinstance(model, bytes) else onnx.load(model, load_external_data=False)
    except (OSError, DecodeError):
        return model
    missing = sorted(required - {tensor.name for tensor in proto.graph.initializer})
    if missing:
        raise coded(Fail, f"Failed to find existing initializer with name {missing[0]}.")
    for tensor in proto.graph.initializer:
        if tensor.name in given:
            found = numpy_helper.from_array(given[tensor.name].numpy(), tensor.name)
            kinds = [(onnx.TensorProto.DataType.Name(one.data_type), list(one.dims)) for one in (tensor, found)]
            if kinds[0] != kinds[1]:
                raise coded(InvalidArgument, f"the initializer {tensor.name!r} is {kinds[0]}, the value given for it {kinds[1]}")
            tensor.CopyFrom(found)
    if not isinstance(model, bytes):
        try:
            external_data_helper.load_external_data_for_model(proto, os.path.dirname(os.path.abspath(model)))
        except (OSError, ValueError, checker.ValidationError) as error:
            raise coded(Fail, f"{model}: {error}") from None
    content: bytes = proto.SerializeToString()
    return content
