"""Limits on requests: size of the body, number and size of headers. And HEAD, which routes for GET do not answer."""

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from dovetail_kserve.errors import RequestRefused, error_text
from dovetail_kserve.metrics import REFUSED
from dovetail_kserve.rest import json_response

__all__ = ["Limits", "LimitsMiddleware"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class Limits:
    """The largest body in bytes, the most headers and bytes of headers, and how many seconds a client may do nothing."""

    body: int
    patience: float
    headers: int = 100
    header_bytes: int = 16 * 1024


class LimitsMiddleware:
    """Refuses requests beyond the limits, before their bodies are read where their headers say so."""

    def __init__(self, app: Application, limits: Limits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check_headers(scope["headers"])
        except RequestRefused as error:
            REFUSED.labels(code=error.code, status=str(error.status)).inc()
            answer = json_response({"error": error_text(error), "code": error.code}, error.status)
            answer.headers["connection"] = "close"  # the rest of the request is not read
            await answer(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # as GET: the server leaves the body of the answer out
            scope = {**scope, "method": "GET"}
        await self._app(scope, self._counted(receive), send)

    def _check_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        size = sum(len(name) + len(value) for name, value in headers)
        if len(headers) > self._limits.headers or size > self._limits.header_bytes:
            accepted = f"{self._limits.headers} with {self._limits.header_bytes} bytes"
            raise RequestRefused(f"the request has {len(headers)} headers with {size} bytes; accepted: {accepted}", status=431)
        found = dict(headers)
        encoding = found.get(b"content-encoding", b"identity").decode("latin-1")
        if encoding != "identity":
            raise RequestRefused(f"the content encoding {encoding!r:.40} is not supported", hint="send it as it is", status=415)
        length = found.get(b"content-length", b"")
        if length.isdigit() and int(length[:20]) > self._limits.body:
            raise self._too_large(f"{length[:20].decode()} bytes")

    def _too_large(self, size: str) -> RequestRefused:
        hint = "send fewer rows in a request, or start the server with a larger --max-size"
        return RequestRefused(f"the body has {size}; accepted: {self._limits.body} bytes", hint=hint, status=413)

    def _counted(self, receive: Receive) -> Receive:
        """As `receive`; raises once the body is too large, for bodies that come in chunks of unknown number."""
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._limits.body:
                raise self._too_large("more")
            return message

        return counted
