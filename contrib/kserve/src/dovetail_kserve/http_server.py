"""kserve's HTTP server with an address, limits on headers, and errors of the HTTP parser in the form of all others."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI
from kserve.constants.constants import FASTAPI_APP_IMPORT_STRING
from kserve.protocol.model_repository_extension import ModelRepositoryExtension
from kserve.protocol.rest.server import RESTServer
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dovetail_kserve.errors import RequestRefused, error_text
from dovetail_kserve.limits import Limits, LimitsMiddleware
from dovetail_kserve.metrics import REFUSED
from dovetail_kserve.plane import Plane
from dovetail_kserve.rest import add_error_handlers, add_routes

__all__ = ["HttpServer", "LimitedProtocol"]


class LimitedProtocol(HttpToolsProtocol):
    """Ends connections whose headers do not end, which the parser would keep all, and hands on bodies in large pieces."""

    most_bytes = 256 * 1024
    """More than the limit of the middleware, which answers most requests with too many headers."""

    largest_piece = 8 * 2**20
    """The part of a body that is collected before the application is woken: uvicorn would wake it for each 64 KiB."""

    def __init__(self, *arguments: Any, limits: Limits, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._in_headers = True
        self._received = 0
        self._pieces: list[bytes] = []
        self._collected = 0
        self._enough = min(self.largest_piece, limits.body + 1)  # what is too large, the application must see
        self._messages = 0
        self._patience = limits.patience
        self._watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn does
        """Send without delay."""
        super().connection_made(transport)
        # asyncio does so for sockets that name TCP only, which those of `socket.create_server` do not. uvicorn sends the head of
        # an answer alone, and the body would wait 40 ms for the client's acknowledgement.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._wait(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio takes an answer, uvicorn gives none
        """Answer a client that has sent its requests and closed its side; the connection ends behind the answer."""
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            return False
        self.cycle.keep_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._received += len(data)
        if self._in_headers and self._received > self.most_bytes and not self.transport.is_closing():
            self._refuse(RequestRefused(f"the headers have more than {self.most_bytes} bytes", status=431))

    def on_headers_complete(self) -> None:
        self._in_headers = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Collect a piece of the body."""
        self._pieces.append(body)
        self._collected += len(body)
        if self._collected >= self._enough:
            self._hand_on()

    def _hand_on(self) -> None:
        body, self._pieces, self._collected = b"".join(self._pieces), [], 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._pieces:
            self._hand_on()
        super().on_message_complete()
        self._in_headers = True
        self._received = 0
        self._messages += 1

    def _wait(self, before: tuple[str, int] | None) -> None:
        """End the connection if its client has done nothing since the last look, as long ago as it may take."""
        now = self._awaited()
        if now is None or now != before:
            self._watch = self.loop.call_later(self._patience, self._wait, now)
        elif now[0] == "reads":
            self.transport.abort()
        else:
            self._refuse(RequestRefused(f"nothing of the request came for {self._patience:g} s", status=408))

    def _awaited(self) -> tuple[str, int] | None:
        """The part of a request that the client is at, and its progress (headers have none); None while it only waits."""
        unread = self.transport.get_write_buffer_size()
        if unread:
            return "reads", unread
        if self.cycle is None or self.cycle.response_complete:
            return "headers", self._messages
        return ("body", self._received) if self.cycle.more_body else None

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP."""
        self._refuse(RequestRefused(msg))

    def _refuse(self, error: RequestRefused) -> None:
        REFUSED.labels(code=error.code, status=str(error.status)).inc()
        content = orjson.dumps({"error": error_text(error), "code": error.code})
        head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\nContent-Type: application/json\r\n"
        self.transport.write(f"{head}Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode() + content)
        self.transport.close()


class HttpServer(RESTServer):  # type: ignore[misc]  # kserve has no type information
    """Serves on a socket that is open already. Signals are the caller's to handle: it calls `stop`."""

    def __init__(self, plane: Plane, listener: socket.socket, limits: Limits, grace: int) -> None:
        port = listener.getsockname()[1]
        super().__init__(FASTAPI_APP_IMPORT_STRING, plane, ModelRepositoryExtension(plane.repository), port, grace_period=grace)
        self._plane, self._listener, self._limits = plane, listener, limits
        self.config.http = partial(LimitedProtocol, limits=limits)
        self.config.ws = "none"
        self.config.access_log = False
        self._server.capture_signals = _no_signals

    def _add_middlewares(self, app: FastAPI) -> None:
        """Instead of kserve's, which times each request and writes a line of log for it."""
        app.add_middleware(LimitsMiddleware, limits=self._limits)

    def _register_endpoints(self, app: FastAPI) -> None:
        add_routes(app, self._plane)
        super()._register_endpoints(app)

    def _add_exception_handlers(self, app: FastAPI) -> None:
        super()._add_exception_handlers(app)
        add_error_handlers(app)

    async def start(self) -> None:
        """Serve until `stop`; returns when the last request is answered, or after the time of grace."""
        self.create_application()
        await self._server.serve(sockets=[self._listener])

    @property
    def started(self) -> bool:
        """True from when requests are accepted."""
        return bool(self._server.started)

    def stop(self) -> None:
        """Accept no more connections, answer the requests that have come, and return from `start`."""
        self._server.should_exit = True


@contextlib.contextmanager
def _no_signals() -> Iterator[None]:
    yield
