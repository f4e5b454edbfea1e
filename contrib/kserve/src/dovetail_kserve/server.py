"""The server: kserve's model server with addresses, reloading, and a stop that answers every request it has accepted."""

import asyncio
import logging
import signal
import socket
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from grpc import aio
from kserve import ModelServer
from prometheus_client import REGISTRY

from dovetail.errors import UsageError
from dovetail_kserve.grpc_service import make_server
from dovetail_kserve.http_server import HttpServer
from dovetail_kserve.limits import Limits
from dovetail_kserve.loader import Loader
from dovetail_kserve.memory import keep_freed_memory
from dovetail_kserve.metrics import ModelCollector
from dovetail_kserve.model import DovetailModel
from dovetail_kserve.plane import Plane, Repository
from dovetail_kserve.versions import Versions

__all__ = ["Addresses", "Server", "ServerOptions"]

_KEPT_MESSAGES = 2
"""Free memory that is kept, in largest messages: a message, and the tensor or answer made of it."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True)
class ServerOptions:
    """Addresses, limits, and times in seconds. Port 0 is a free one; `grpc_port` None serves no gRPC."""

    host: str
    port: int
    grpc_port: int | None
    max_bytes: int
    reload: float
    drain_delay: float
    grace: int
    client_timeout: float
    reuse_port: bool


@dataclass(frozen=True)
class Addresses:
    """Where the server listens; `grpc` is None without gRPC."""

    http: str
    grpc: str | None


class Server(ModelServer):  # type: ignore[misc]  # kserve has no type information
    """Serves models until SIGTERM or SIGINT."""

    def __init__(self, models: Mapping[str, Versions], options: ServerOptions, say: Callable[[str], object]) -> None:
        repository = Repository()
        # kserve's choice for the answers that are not made here.
        warnings.filterwarnings("ignore", "ORJSONResponse is deprecated")
        super().__init__(registered_models=repository, grace_period=options.grace, enable_latency_logging=False)
        # Lines about each request; refused requests are errors of the client's, which the metrics count.
        for name in ("kserve", "kserve.trace", "uvicorn", "uvicorn.error", "uvicorn.access"):
            logging.getLogger(name).setLevel(logging.ERROR)
        for name, versions in models.items():
            self.register_model(DovetailModel(name, versions))
        self.dataplane = Plane(repository)
        self._models, self._options, self._say = tuple(models.values()), options, say
        self._failure: Exception | None = None

    def serve(self, listening: Callable[[Addresses], object]) -> None:
        """Serve until a signal comes. `listening` is called when requests are accepted, before the models are loaded.

        Raises `UsageError` for an address that is in use, and what loading a model for the first time raises.
        """
        keep_freed_memory(_KEPT_MESSAGES * self._options.max_bytes)
        collector = ModelCollector(self.dataplane.repository)
        REGISTRY.register(collector)
        try:
            asyncio.run(self._run(listening))
        finally:
            REGISTRY.unregister(collector)
            for versions in self._models:
                versions.close()
        if self._failure is not None:
            raise self._failure

    async def _run(self, listening: Callable[[Addresses], object]) -> None:
        self._stopping, loaded = asyncio.Event(), asyncio.Event()
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._stop)
        loader = self._make_loader(loaded)
        if self._options.reuse_port:
            # The other server answers until this one can.
            loader.start()
            await _first(loaded, self._stopping)
        if not self._stopping.is_set():
            await self._serve_until_stopped(listening, loader)
        await asyncio.to_thread(loader.stop, self._options.grace)

    async def _serve_until_stopped(self, listening: Callable[[Addresses], object], loader: Loader) -> None:
        options = self._options
        http = HttpServer(self.dataplane, self._listen(), Limits(options.max_bytes, options.client_timeout), options.grace)
        grpc, grpc_address = self._make_grpc()
        serving = asyncio.create_task(http.start())
        if grpc is not None:
            await grpc.start()
        while not http.started and not serving.done():
            await asyncio.sleep(0.01)
        listening(Addresses(f"http://{_address(options.host, http.config.port)}", grpc_address))
        loader.start()
        await _first(self._stopping, serving)
        self.dataplane.draining = True
        if self._failure is None:
            await asyncio.sleep(options.drain_delay)
        http.stop()
        await asyncio.gather(serving, *([grpc.stop(options.grace)] if grpc is not None else ()))

    def _stop(self) -> None:
        """Begin to end. The next signal ends the process at once, whatever it is doing."""
        for number in _SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        self._stopping.set()

    def _listen(self) -> socket.socket:
        host, port = self._options.host, self._options.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            return socket.create_server((host, port), family=family, backlog=2048, reuse_port=self._options.reuse_port)
        except OSError as error:
            raise _cannot_listen(host, port, error) from None

    def _make_grpc(self) -> tuple[aio.Server | None, str | None]:
        """A gRPC server that is bound to its address, and the address."""
        options = self._options
        if options.grpc_port is None:
            return None, None
        server = make_server(self.dataplane, options.max_bytes, reuse_port=options.reuse_port)
        try:
            port = server.add_insecure_port(_address(options.host, options.grpc_port))
        except RuntimeError as error:
            raise _cannot_listen(options.host, options.grpc_port, error) from None
        return server, _address(options.host, port)

    def _make_loader(self, loaded: asyncio.Event) -> Loader:
        """Loads the models in the background; a failure stops the server."""
        loop, began = asyncio.get_running_loop(), time.monotonic()

        def done(error: Exception | None) -> None:
            if error is None:
                self._say(f"Ready after {time.monotonic() - began:.1f} s.")
            else:
                self._failure = error
                loop.call_soon_threadsafe(self._stopping.set)
            loop.call_soon_threadsafe(loaded.set)

        return Loader(self._models, self._options.reload, done)


async def _first(*awaited: "asyncio.Event | asyncio.Task[None]") -> None:
    """Wait until one of them is set or done."""
    tasks = [one if isinstance(one, asyncio.Task) else asyncio.create_task(one.wait()) for one in awaited]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _cannot_listen(host: str, port: int, error: Exception) -> UsageError:
    return UsageError(f"cannot listen on {_address(host, port)}: {error}", hint="choose another port; 0 takes a free one")
