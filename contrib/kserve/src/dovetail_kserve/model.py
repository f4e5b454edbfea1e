"""A dovetail model as a model of kserve."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from kserve import InferInput, InferOutput, InferRequest, InferResponse, Model
from kserve.protocol.grpc.grpc_predict_v2_pb2 import InferTensorContents
from numpy.typing import NDArray

from dovetail.errors import UsageError, did_you_mean
from dovetail.op import TensorType
from dovetail_kserve.datatypes import check_shape, datatype_of, from_bytes, from_values
from dovetail_kserve.errors import RequestRefused
from dovetail_kserve.grpc_messages import from_contents
from dovetail_kserve.offload import offloaded
from dovetail_kserve.versions import LoadedVersion, Versions

__all__ = ["DovetailModel"]


class DovetailModel(Model):  # type: ignore[misc]  # kserve has no type information
    """The versions of one model behind kserve's interface."""

    def __init__(self, name: str, versions: Versions) -> None:
        super().__init__(name)
        self.versions = versions

    async def healthy(self) -> bool:
        """True once a version is compiled and planned."""
        return bool(self.versions.loaded)

    def get_input_types(self) -> list[dict[str, Any]]:
        """The inputs of the highest version."""
        return list(self.versions.get().inputs.values())

    def get_output_types(self) -> list[dict[str, Any]]:
        """The outputs of the highest version."""
        return list(self.versions.get().outputs.values())

    async def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> InferResponse:
        """Run the model for one request of protocol v2. Raises `DovetailError`."""
        if not isinstance(payload, InferRequest):
            hint = f"use the open inference protocol: POST /v2/models/{self.name}/infer"
            raise RequestRefused("requests of protocol v1 are not accepted", hint=hint)
        with self.versions.lease(payload.model_version or "") as version, version.statistics.request() as watch:
            async with version.free:
                watch.lap("queue")
                inputs = await offloaded(sum(map(_size, payload.inputs)), _read_inputs, payload.inputs, version)
                names = _asked_outputs(payload, version)
                watch.lap("compute_input")
                results = await version.queue.infer(inputs)
                watch.rows = len(next(iter(inputs.values()))) if version.has_rows else 1
                watch.lap("compute_infer")
            outputs = [_output(name, results[name]) for name in names]
            watch.lap("compute_output")
        return InferResponse(
            response_id=payload.id,
            model_name=self.name,
            model_version=version.number,
            infer_outputs=outputs,
            use_binary_outputs=payload.use_binary_outputs,
            requested_outputs=payload.request_outputs,
        )


def _size(one: InferInput) -> int:
    """About the bytes that reading an input goes through. Binary data is used where it is."""
    if isinstance(one.data, InferTensorContents):
        return 8 * math.prod(tuple[int, ...](one.shape))
    return 8 * len(one.data) if isinstance(one.data, list) else 0


def _read_inputs(given: Sequence[InferInput], version: LoadedVersion) -> dict[str, NDArray[Any]]:
    """The inputs by name. Whether their shapes fit, the compiled model checks. Raises `RequestRefused`."""
    found: dict[str, NDArray[Any]] = {}
    for one in given:
        expected = version.inputs.get(one.name)
        if expected is None:
            hint = did_you_mean(one.name, version.inputs)
            raise RequestRefused(f"the model has no input {one.name!r:.80}; it has {', '.join(version.inputs)}", hint=hint)
        if one.name in found:
            raise RequestRefused(f"input {one.name!r} is given twice")
        if one.datatype != expected["datatype"]:
            raise RequestRefused(f"input {one.name!r} is {one.datatype:.40}; accepted: {expected['datatype']}")
        found[one.name] = _array(one)
    return found


def _array(one: InferInput) -> NDArray[Any]:
    shape = check_shape(one.name, one.shape)
    if isinstance(one.data, InferTensorContents):
        return from_contents(one.name, one.datatype, shape, one.data)
    if isinstance(one.data, bytes | memoryview):
        return from_bytes(one.name, one.datatype, shape, one.data)
    return from_values(one.name, one.datatype, shape, one.data)


def _asked_outputs(request: InferRequest, version: LoadedVersion) -> tuple[str, ...]:
    names = version.compiled.model.outputs
    asked = tuple(output.name for output in request.request_outputs or ()) or names
    for name in asked:
        if name not in names:
            hint = did_you_mean(name, names)
            raise RequestRefused(f"the model has no output {name!r:.80}; it has {', '.join(names)}", hint=hint)
    if len(set(asked)) < len(asked):  # a small request would ask for an answer of any size
        raise RequestRefused("an output is asked for twice", hint="name each output once")
    return asked


def _output(name: str, value: Any) -> InferOutput:
    if not isinstance(value, np.ndarray):
        raise UsageError(f"output {name!r} is a {type(value).__name__}; the open inference protocol has tensors only")
    return InferOutput(name, list(value.shape), datatype_of(TensorType.of(value), name), value)
