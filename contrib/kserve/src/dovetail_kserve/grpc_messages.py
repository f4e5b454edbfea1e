"""Requests and answers of the gRPC protocol."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from kserve import InferInput, InferRequest, InferResponse
from kserve.protocol.grpc.grpc_predict_v2_pb2 import InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse
from kserve.protocol.infer_type import RequestedOutput
from numpy.typing import NDArray

from dovetail_kserve.datatypes import DATATYPES, check_shape, from_values, to_bytes
from dovetail_kserve.errors import RequestRefused
from dovetail_kserve.parameters import check_parameters

__all__ = ["read_request", "write_response"]

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


def read_request(message: ModelInferRequest) -> InferRequest:
    """The request in a message; raw contents stay bytes. Raises `RequestRefused`."""
    raw = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise RequestRefused(f"{len(raw)} raw_input_contents for {len(message.inputs)} inputs; accepted: one for each, or none")
    for part in (message, *message.inputs, *message.outputs):
        check_parameters({name: _value(given) for name, given in part.parameters.items()})
    inputs = []
    for index, one in enumerate(message.inputs):
        if raw and one.HasField("contents"):
            raise RequestRefused(f"input {one.name!r:.80} has contents and raw_input_contents; accepted: one of them")
        shape = check_shape(one.name, list(one.shape))
        data = raw[index] if raw else _from_contents(one.name, one.datatype, shape, one.contents)
        inputs.append(InferInput(one.name, list(shape), one.datatype, data))
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


def _from_contents(name: str, datatype: str, shape: tuple[int, ...], contents: InferTensorContents) -> NDArray[Any]:
    field = _CONTENTS.get(datatype)
    if field is None:
        accepted = f"accepted: {', '.join(DATATYPES)}; FP16 and BF16 as raw_input_contents"
        raise RequestRefused(f"input {name!r:.80} is {datatype!r:.40} in contents; {accepted}")
    others = [descriptor.name for descriptor, _ in contents.ListFields() if descriptor.name != field]
    if others:
        raise RequestRefused(f"input {name!r:.80} is {datatype} and has {others[0]}; accepted: {field}")
    values = list(getattr(contents, field))
    if datatype in ("FP32", "FP64") and len(values) == np.prod(shape, dtype=object):
        return np.array(values, DATATYPES[datatype].numpy).reshape(shape)  # NaN and infinity are values here
    return from_values(name, datatype, shape, values)


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
