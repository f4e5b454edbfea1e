"""Requests and answers of the REST protocol: JSON, followed by the binary data of tensors."""

from collections.abc import Mapping
from typing import Any

import orjson
from kserve import InferInput, InferRequest, InferResponse
from kserve.protocol.infer_type import RequestedOutput

from dovetail_kserve.datatypes import to_bytes, to_values
from dovetail_kserve.errors import RequestRefused
from dovetail_kserve.parameters import check_parameters

__all__ = ["HEADER_LENGTH", "json_length", "read_request", "write_response"]

HEADER_LENGTH = "Inference-Header-Content-Length"
"""The header with the length of the JSON before binary data, in requests and answers."""

_MOST_OBJECTS = 10_000
"""Inputs or outputs of a request."""


def read_request(body: bytes, header_length: str | None, model: str, version: str | None) -> InferRequest:
    """The request in a body. Its inputs have binary data as `memoryview`. Raises `RequestRefused`."""
    length = json_length(header_length, len(body))
    message = _parsed(memoryview(body)[:length])
    binary = _Binary(memoryview(body)[length:])
    inputs = [_input(one, binary) for one in _objects(message, "inputs")]
    if binary.rest:
        raise RequestRefused(f"{len(binary.rest)} bytes of binary data belong to no input", hint="check each binary_data_size")
    outputs = [_requested(one) for one in _objects(message, "outputs")] if message.get("outputs") is not None else None
    return InferRequest(
        model_name=model,
        infer_inputs=inputs,
        request_id=_text(message, "id", ""),
        parameters=_parameters(message),
        request_outputs=outputs,
        model_version=version,
    )


def json_length(header: str | None, available: int) -> int:
    """The length of the JSON in a body of `available` bytes. Raises `RequestRefused`."""
    if header is None:
        return available
    if not (header.isascii() and header.isdigit()) or len(header) > 18 or int(header) > available:
        raise RequestRefused(f"{HEADER_LENGTH} is {header!r:.40}; accepted: a number up to the body's {available} bytes")
    return int(header)


def _parsed(text: memoryview) -> dict[str, Any]:
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        hint = f"the header {HEADER_LENGTH} has the length of the JSON when binary data follows"
        raise RequestRefused(f"the body is not JSON: {error}", hint=hint) from None
    if not isinstance(message, dict):
        raise RequestRefused(f"the body is {_kind(message)}; accepted: an object with inputs")
    return message


class _Binary:
    """The binary data that no tensor has taken yet."""

    def __init__(self, content: memoryview) -> None:
        self.rest = content

    def take(self, name: str, size: object) -> memoryview:
        if type(size) is not int or size < 0:
            raise RequestRefused(f"input {name!r:.80}: binary_data_size is {size!r:.40}; accepted: a number of bytes")
        if size > len(self.rest):
            raise RequestRefused(f"input {name!r:.80} has {size} bytes of binary data; the body has {len(self.rest)} for it")
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken


def _input(message: Mapping[str, Any], binary: _Binary) -> InferInput:
    name, parameters, data = _text(message, "name"), _parameters(message), message.get("data")
    if data is None:
        if "binary_data_size" not in parameters:
            raise RequestRefused(f"input {name!r:.80} has no data", hint="accepted: data, or the parameter binary_data_size")
        data = binary.take(name, parameters["binary_data_size"])
    elif "binary_data_size" in parameters:
        raise RequestRefused(f"input {name!r:.80} has data as JSON and as binary data; accepted: one of them")
    return InferInput(name, message.get("shape"), _text(message, "datatype"), data, parameters)


def _requested(message: Mapping[str, Any]) -> RequestedOutput:
    return RequestedOutput(_text(message, "name"), _parameters(message))


def _objects(message: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = message.get(key)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise RequestRefused(f"{key} is {_kind(found)}; accepted: a list of objects")
    if len(found) > _MOST_OBJECTS:
        raise RequestRefused(f"{key} has {len(found)} objects; accepted: {_MOST_OBJECTS}")
    return found


def _text(message: Mapping[str, Any], key: str, default: str | None = None) -> str:
    found = message.get(key, default)
    if not isinstance(found, str):
        raise RequestRefused(f"{key} is {_kind(found)}; accepted: a string")
    return found


def _parameters(message: Mapping[str, Any]) -> dict[str, Any]:
    found = message.get("parameters") or {}
    if not isinstance(found, dict):
        raise RequestRefused(f"parameters is {_kind(found)}; accepted: an object")
    check_parameters(found)
    return found


def _kind(value: object) -> str:
    return {dict: "an object", list: "a list", type(None): "missing"}.get(type(value), f"{value!r:.40}")


def write_response(response: InferResponse, request: InferRequest) -> tuple[bytes, int | None]:
    """The body of an answer, and the length of its JSON if binary data follows. Raises `RequestRefused`."""
    wants_binary = {output.name: output.binary_data for output in request.request_outputs or ()}
    binary_by_default = (request.parameters or {}).get("binary_data_output") is True
    outputs, tensors = [], []
    for one in response.outputs:
        described: dict[str, Any] = {"name": one.name, "datatype": one.datatype, "shape": one.shape}
        wanted = wants_binary.get(one.name)
        if binary_by_default if wanted is None else wanted is True:
            tensors.append(to_bytes(one.data))
            described["parameters"] = {"binary_data_size": len(tensors[-1])}
        else:
            described["data"] = to_values(one.name, one.data)
        outputs.append(described)
    message = {"model_name": response.model_name, "model_version": response.model_version, "outputs": outputs}
    if response.id:
        message["id"] = response.id
    text = orjson.dumps(message, option=orjson.OPT_SERIALIZE_NUMPY)
    return (b"".join((text, *tensors)), len(text)) if tensors else (text, None)
