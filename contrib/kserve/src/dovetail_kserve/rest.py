"""The REST interface: routes that take the place of kserve's, or that it lacks, and errors as answers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from dovetail.errors import DovetailError, InputError, UsageError
from dovetail_kserve.errors import RequestRefused, error_text, http_status
from dovetail_kserve.metrics import REFUSED
from dovetail_kserve.offload import offloaded
from dovetail_kserve.plane import Plane
from dovetail_kserve.rest_messages import HEADER_LENGTH, json_length, read_request, write_response

__all__ = ["add_error_handlers", "add_routes", "json_response"]

Endpoint = Callable[..., Awaitable[Response]]

_MODEL = "/v2/models/{model_name}"
_VERSION = _MODEL + "/versions/{version}"


def json_response(content: Any, status: int = 200) -> Response:
    """An answer in JSON."""
    return Response(orjson.dumps(content), status, media_type="application/json")


def add_routes(app: FastAPI, plane: Plane) -> None:
    """Add the routes. Those that kserve adds later to the same addresses are not reached any more."""
    endpoints = _Endpoints(plane)
    router = APIRouter(include_in_schema=False)
    router.add_api_route("/v2/health/ready", endpoints.server_ready, methods=["GET"])
    # Before those with the name of a model, which may not be "stats" therefore.
    router.add_api_route("/v2/models/stats", endpoints.statistics, methods=["GET"])
    for base in (_MODEL, _VERSION):
        router.add_api_route(base, endpoints.metadata, methods=["GET"])
        router.add_api_route(f"{base}/ready", endpoints.ready, methods=["GET"])
        router.add_api_route(f"{base}/stats", endpoints.statistics, methods=["GET"])
        router.add_api_route(f"{base}/explain", endpoints.explain, methods=["GET"])
        router.add_api_route(f"{base}/infer", endpoints.infer, methods=["POST"])
    router.add_api_route("/v2/repository/models/{model_name}/load", endpoints.load, methods=["POST"])
    app.include_router(router)


class _Endpoints:
    """One method for each route."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    async def metadata(self, request: Request) -> Response:
        return json_response(await self._plane.model_metadata(*_named(request)))

    async def server_ready(self, _: Request) -> Response:
        is_ready = await self._plane.ready()
        return json_response({"ready": is_ready}, 200 if is_ready else 503)

    async def ready(self, request: Request) -> Response:
        name, version = _named(request)
        is_ready = await self._plane.model_ready(name, version=version)
        return json_response({"name": name, "ready": is_ready}, 200 if is_ready else 503)

    async def statistics(self, request: Request) -> Response:
        return json_response(self._plane.statistics(*_named(request)))

    async def explain(self, request: Request) -> Response:
        found = self._plane.version(*_named(request))
        report = found.compiled.report().as_dict()
        return json_response({"model": found.compiled.model.source, "device": found.compiled.device, **report})

    async def load(self, request: Request) -> Response:
        name, _ = _named(request)
        await asyncio.to_thread(self._plane.repository.named(name).versions.load)
        return json_response({"name": name, "load": True})

    async def infer(self, request: Request) -> Response:
        name, version = _named(request)
        self._plane.version(name, version)  # before the body is read
        body, header = await request.body(), request.headers.get(HEADER_LENGTH)
        asked = await offloaded(json_length(header, len(body)), read_request, body, header, name, version)
        answer, _ = await self._plane.infer(model_name=name, request=asked)
        content, length = await offloaded(sum(one.data.nbytes for one in answer.outputs), write_response, answer, asked)
        if length is None:
            return Response(content, media_type="application/json")
        return Response(content, headers={HEADER_LENGTH: str(length)}, media_type="application/octet-stream")


def _named(request: Request) -> tuple[str, str]:
    """The model and the version in the address; empty where it has none."""
    return request.path_params.get("model_name", ""), request.path_params.get("version", "")


def add_error_handlers(app: FastAPI) -> None:
    """Answer errors with `{"error": text, "code": code}`."""

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, DovetailError)
        return _refusal(error, http_status(error))

    async def invalid(_: Request, error: Exception) -> Response:
        return _refusal(InputError(f"the request is malformed: {error}"), 400)

    async def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        text = f"{request.method} {request.url.path[:200]}: {error.detail}"
        answer = _refusal(UsageError(text, hint="the addresses are those of the open inference protocol v2"), error.status_code)
        answer.headers.update(error.headers or {})  # with 405, the methods that are allowed
        return answer

    async def disconnected(_: Request, error: Exception) -> Response:
        # Nobody reads the answer: it is for the metrics, with the status that proxies use.
        return _refusal(RequestRefused("the client closed the connection before the end of the body"), 499)

    app.add_exception_handler(DovetailError, refused)
    app.add_exception_handler(ClientDisconnect, disconnected)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, unknown)


def _refusal(error: DovetailError, status: int) -> Response:
    REFUSED.labels(code=error.code, status=str(status)).inc()
    return json_response({"error": error_text(error), "code": error.code}, status)
