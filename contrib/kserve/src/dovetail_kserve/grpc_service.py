"""The gRPC interface: kserve's service with versions, strict requests, statistics, and errors as statuses."""

from collections.abc import Mapping
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc import aio
from grpc_interceptor.exceptions import GrpcException
from kserve.protocol.grpc import grpc_predict_v2_pb2 as pb
from kserve.protocol.grpc.grpc_predict_v2_pb2_grpc import add_GRPCInferenceServiceServicer_to_server
from kserve.protocol.grpc.interceptors import ExceptionToStatusInterceptor
from kserve.protocol.grpc.servicer import InferenceServicer
from kserve.protocol.model_repository_extension import ModelRepositoryExtension

from dovetail.errors import DovetailError
from dovetail_kserve.errors import RequestRefused, error_text, grpc_status_name
from dovetail_kserve.grpc_health import HEALTH, health_methods
from dovetail_kserve.grpc_messages import check_fields, read_request, write_response
from dovetail_kserve.metrics import REFUSED
from dovetail_kserve.offload import offloaded
from dovetail_kserve.plane import Plane
from dovetail_kserve.statistics_messages import StatisticsRequest, StatisticsResponse

__all__ = ["make_server"]

_SERVICE = "inference.GRPCInferenceService"


class _Servicer(InferenceServicer):  # type: ignore[misc]  # kserve has no type information
    """The methods of kserve's service that versions or strict requests need."""

    def __init__(self, plane: Plane) -> None:
        super().__init__(plane, ModelRepositoryExtension(plane.repository))
        self._plane = plane

    async def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802  # the protocol's name
        return pb.ModelReadyResponse(ready=await self._plane.model_ready(request.name, version=request.version))

    async def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.ModelMetadataResponse(**await self._plane.model_metadata(request.name, request.version))

    async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer, _ = await self._plane.infer(model_name=request.model_name, request=read_request(request))
        raw, size = bool(request.raw_input_contents), sum(one.data.nbytes for one in answer.outputs)
        return await offloaded(size, write_response, answer, raw=raw)

    async def RepositoryModelLoad(self, request: Any, context: Any) -> Any:  # noqa: N802
        raise RequestRefused("models are not loaded by gRPC", hint="POST /v2/repository/models/NAME/load", status=405)

    async def RepositoryModelUnload(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._plane.repository.unload(request.model_name)

    async def ModelStatistics(self, request: Any, context: Any) -> Any:  # noqa: N802
        return StatisticsResponse(**self._plane.statistics(request.name, request.version))


class _Errors(ExceptionToStatusInterceptor):  # type: ignore[misc]  # kserve has no type information
    """Errors of dovetail as statuses, with code, message and hint as details."""

    async def handle_exception(self, ex: Exception, request_or_iterator: Any, context: Any, method_name: str) -> None:
        if isinstance(ex, DovetailError):
            status = grpc_status_name(ex)
            REFUSED.labels(code=ex.code, status=status).inc()
            ex = GrpcException(status_code=getattr(grpc.StatusCode, status), details=error_text(ex))
        await super().handle_exception(ex, request_or_iterator, context, method_name)


def make_server(plane: Plane, max_bytes: int, *, reuse_port: bool) -> aio.Server:
    """A server that is not bound to an address yet. Larger messages are refused by gRPC itself."""
    options = [
        ("grpc.max_receive_message_length", max_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", int(reuse_port)),
    ]
    server = aio.server(interceptors=(_Errors(),), options=options)
    for service, methods in ((_SERVICE, _methods(_Servicer(plane))), (HEALTH, health_methods(plane, _SERVICE))):
        handlers = {name: _parsing(method) for name, method in methods.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    return server


def _methods(servicer: _Servicer) -> dict[str, Any]:
    """The handlers of all methods by name: kserve's, and the one that it lacks."""
    collected = _Collector()
    add_GRPCInferenceServiceServicer_to_server(servicer, collected)
    statistics = grpc.unary_unary_rpc_method_handler(
        servicer.ModelStatistics, StatisticsRequest.FromString, StatisticsResponse.SerializeToString
    )
    return {**collected.methods, "ModelStatistics": statistics}


def _parsing(method: Any) -> Any:
    """The handler of a method, which gets messages as bytes: of one that cannot be parsed, the interceptor sees the error."""

    async def call(message: bytes, context: Any) -> Any:
        check_fields(message)
        try:
            request = method.request_deserializer(message)
        except DecodeError as error:
            raise RequestRefused(f"the message is malformed: {error}") from None
        return await method.unary_unary(request, context)

    return grpc.unary_unary_rpc_method_handler(call, bytes, method.response_serializer)


class _Collector:
    """Takes the handlers of a generated function that adds them to a server."""

    def __init__(self) -> None:
        self.methods: Mapping[str, Any] = {}

    def add_generic_rpc_handlers(self, _: Any) -> None:
        """Nothing: the same handlers come by name."""

    def add_registered_method_handlers(self, _: str, methods: Mapping[str, Any]) -> None:
        """Keep them."""
        self.methods = methods
