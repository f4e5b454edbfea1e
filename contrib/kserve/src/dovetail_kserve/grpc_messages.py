"""Requests and answers of the gRPC protocol."""

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kserve import InferInput, InferRequest, InferResponse
from kserve.protocol.grpc.grpc_predict_v2_pb2 import InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse
from kserve.protocol.infer_type import RequestedOutput
from numpy.typing import NDArray

from dovetail_kserve.datatypes import DATATYPES, check_range, check_shape, from_values, in_parts, shaped, to_bytes
from dovetail_kserve.errors import RequestRefused
from dovetail_kserve.parameters import check_parameters

__all__ = ["check_fields", "from_contents", "read_request", "write_response"]

_MOST_FIELDS = 10_000
"""Of a request, its inputs and its outputs. Each input has three or four."""

_NESTED = frozenset(ModelInferRequest.DESCRIPTOR.fields_by_name[name].number for name in ("inputs", "outputs"))

_CONTENTS: Mapping[str, str] = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""The field of `InferTensorContents` for each data type. The others are sent as raw contents."""


def check_fields(message: bytes) -> None:
    """Raise `RequestRefused` for a message of more fields than requests have, before protobuf makes objects of them.

    A field of two bytes becomes an object of hundreds.
    """
    try:
        left = _fields_left(memoryview(message), _NESTED, _MOST_FIELDS)
    except IndexError:  # malformed: the parser tells where
        return
    if left < 0:
        raise RequestRefused(f"the message has more than {_MOST_FIELDS} fields", hint="send large tensors as raw_input_contents")


def _fields_left(message: memoryview, nested: frozenset[int], left: int) -> int:
    """`left` less the fields of a message in protobuf's wire format and of the messages in its fields `nested`."""
    position = 0
    while position < len(message) and left >= 0:
        left -= 1
        key, position = _varint(message, position)
        kind = key & 7
        if kind == 0:
            _, position = _varint(message, position)
        elif kind == 2:
            size, position = _varint(message, position)
            if key >> 3 in nested:
                with suppress(IndexError):  # no message: in a group of unknown fields the number has another meaning
                    left = _fields_left(message[position : position + size], frozenset(), left)
            position += size
        else:  # numbers of 8 and 4 bytes; groups have their fields behind them
            position += {1: 8, 5: 4}.get(kind, 0)
    return left


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """A number, and the position behind it. Raises `IndexError` for one that does not end."""
    value = 0
    for shift in range(0, 70, 7):  # 64 bits
        byte = message[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise IndexError


def read_request(message: ModelInferRequest) -> InferRequest:
    """The request in a message; raw contents stay bytes, others messages. Raises `RequestRefused`."""
    raw = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise RequestRefused(f"{len(raw)} raw_input_contents for {len(message.inputs)} inputs; accepted: one for each, or none")
    for part in (message, *message.inputs, *message.outputs):
        check_parameters({name: _value(given) for name, given in part.parameters.items()})
    inputs = []
    for index, one in enumerate(message.inputs):
        if raw and one.HasField("contents"):
            raise RequestRefused(f"input {one.name!r:.80} has contents and raw_input_contents; accepted: one of them")
        shape = check_shape(one.name, one.shape)
        inputs.append(InferInput(one.name, list(shape), one.datatype, raw[index] if raw else one.contents))
    return InferRequest(
        model_name=message.model_name,
        infer_inputs=inputs,
        request_id=message.id,
        raw_inputs=None,
        from_grpc=True,
        request_outputs=[RequestedOutput(output.name) for output in message.outputs] or None,
        model_version=message.model_version,
    )


def _value(parameter: InferParameter) -> object:
    kind = parameter.WhichOneof("parameter_choice")
    return True if kind is None else getattr(parameter, kind)  # Triton's clients have further kinds


def from_contents(name: str, datatype: str, shape: tuple[int, ...], contents: InferTensorContents) -> NDArray[Any]:
    """The array that typed contents hold. Raises `RequestRefused`."""
    field = _CONTENTS.get(datatype)
    if field is None:
        accepted = f"accepted: {', '.join(DATATYPES)}; FP16 and BF16 as raw_input_contents"
        raise RequestRefused(f"input {name!r:.80} is {datatype!r:.40} in contents; {accepted}")
    others = [descriptor.name for descriptor, _ in contents.ListFields() if descriptor.name != field]
    if others:
        raise RequestRefused(f"input {name!r:.80} is {datatype} and has {others[0]}; accepted: {field}")
    values = getattr(contents, field)
    if len(values) != math.prod(shape):
        raise RequestRefused(f"input {name!r} has {len(values)} values; its shape {list(shape)} has {math.prod(shape)}")
    if datatype == "BYTES":
        return from_values(name, datatype, shape, list(values))
    dtype = DATATYPES[datatype].numpy
    if "INT" not in datatype:
        return shaped(name, in_parts(dtype, values, lambda part: part), shape)  # NaN and infinity are values here
    return shaped(name, in_parts(dtype, values, lambda part: check_range(name, datatype, part)), shape)


def write_response(response: InferResponse, *, raw: bool) -> ModelInferResponse:
    """The answer: raw contents where the request had them, or where a data type has no other."""
    raw = raw or any(one.datatype not in _CONTENTS for one in response.outputs)
    message = ModelInferResponse(id=response.id or "", model_name=response.model_name, model_version=response.model_version)
    for one in response.outputs:
        output = message.outputs.add(name=one.name, datatype=one.datatype, shape=one.shape)
        if raw:
            message.raw_output_contents.append(to_bytes(one.data))
        else:
            getattr(output.contents, _CONTENTS[one.datatype]).extend(_elements(one.data))
    return message


def _elements(array: NDArray[Any]) -> list[Any]:
    values = array.reshape(-1).tolist()
    return [v if isinstance(v, bytes) else str(v).encode() for v in values] if array.dtype == object else values
