"""`dovetail serve`: models as a service with the open inference protocol v2, over REST and gRPC."""

import sys
from typing import TYPE_CHECKING, Any

import click

from dovetail.command import (
    FiniteRange,
    command,
    complete_files,
    config_file_option,
    device_option,
    extension_option,
    make_core,
    print_json,
    print_text,
    remark,
)
from dovetail.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dovetail.runtime import Core
    from dovetail_kserve.server import Addresses, Server, ServerOptions
    from dovetail_kserve.versions import Options, Versions

__all__ = ["serve"]

_MIB = 1 << 20


@command('dovetail serve model.onnx\ndovetail serve digits=models/digits other.onnx -d "BATCH:ONEDNN(8)" --port 9000')
@click.argument("models", nargs=-1, required=True, metavar="[NAME=]PATH...", shell_complete=complete_files)
@device_option
@extension_option
@config_file_option
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on; 0.0.0.0 is every network.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Of REST; 0 takes a free one.")
@click.option("--grpc-port", type=click.IntRange(0, 65535), default=8081, show_default=True, help="Of gRPC; 0 takes a free one.")
@click.option("--no-grpc", is_flag=True, help="Serve REST only.")
@click.option(
    "--requests", type=click.IntRange(min=0), default=0, metavar="N", help="At once; 0: as many as the device asks for."
)
@click.option("--max-size", type=FiniteRange(min=0.001), default=64, show_default=True, help="Of a request, in MiB.")
@click.option("--reload", "interval", type=FiniteRange(min=0), default=2, show_default=True, metavar="SECONDS",
              help="How often to look for changed model files; 0: never.")  # fmt: skip
@click.option("--drain-delay", type=FiniteRange(min=0), default=0, metavar="SECONDS",
              help="After SIGTERM, not ready but accepting requests for so long.")  # fmt: skip
@click.option("--grace", type=click.IntRange(min=1), default=30, show_default=True, metavar="SECONDS",
              help="How long requests may go on after SIGTERM.")  # fmt: skip
@click.option("--client-timeout", type=FiniteRange(min=0.1), default=60, show_default=True, metavar="SECONDS",
              help="How long a REST client may take for its headers, and do nothing while it sends a body or reads.")  # fmt: skip
@click.option("--reuse-port", is_flag=True, help="Listen once the models are loaded, on ports that another such server may have.")
def serve(
    models: tuple[str, ...], device: str, extensions: tuple[str, ...], config_files: tuple[str, ...], host: str, port: int,
    grpc_port: int, no_grpc: bool, requests: int, max_size: float, interval: float, drain_delay: float, grace: int,
    client_timeout: float, reuse_port: bool, as_json: bool,
) -> None:  # fmt: skip
    """Serve models with the open inference protocol v2.

    It is the protocol of KServe and Triton, over REST and gRPC.

    PATH is a model file, a folder with one, or a folder with a folder for each version: 1, 2, and so on. Requests that name no
    version get the highest. The name is the file's or folder's, unless NAME= gives another.

    The server accepts requests at once, and is ready (`/v2/health/ready`) when all models are compiled and planned. A changed
    model file is loaded beside the old one, which serves until then. SIGTERM and SIGINT end the server when the requests that it
    has accepted are answered; a second one ends it at once. The exit code is 1 when a model cannot be loaded at the start.

    Beyond the protocol: `/v2/models/NAME/stats`, `/v2/models/NAME/explain`, and Prometheus metrics at `/metrics`.

    \b
    JSON, when the server listens: {"http": address, "grpc": address or null,
           "models": [name]}
    """
    from dovetail_kserve.sources import parse_sources
    from dovetail_kserve.versions import Options, Versions

    if not host.strip():  # the socket would take it for every network, as where a variable of a shell is not set
        raise click.UsageError("--host is empty; accepted: an address, such as 127.0.0.1, or 0.0.0.0 for every network.")
    make_server, make_options = _engine()
    core = make_core(extensions)
    options = Options(device, {"CONFIG_FILE": list(config_files)} if config_files else {}, requests)
    served = {source.name: Versions(core, source, options, remark) for source in parse_sources(models)}
    _check_device(core, options)
    server = make_server(
        served,
        make_options(
            host=host, port=port, grpc_port=None if no_grpc else grpc_port, max_bytes=int(max_size * _MIB), reload=interval,
            drain_delay=drain_delay, grace=grace, client_timeout=client_timeout, reuse_port=reuse_port,
        ),
        remark,
    )  # fmt: skip

    def listening(addresses: "Addresses") -> None:
        described = {"http": addresses.http, "grpc": addresses.grpc, "models": list(served)}
        (print_json if as_json else _print)(described)
        sys.stdout.flush()

    try:
        server.serve(listening)
    finally:
        _remark_counts(served)


def _engine() -> "tuple[type[Server], type[ServerOptions]]":
    """The classes over kserve. Raises `UsageError` where it is not installed."""
    arguments, sys.argv = sys.argv, sys.argv[:1]  # kserve parses them when it is imported
    try:
        from dovetail_kserve.server import Server, ServerOptions
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kserve":
            raise
        hint = "kserve has no release for Python 3.14 yet; with 3.11 to 3.13: pip install dovetail-kserve"
        raise UsageError("`dovetail serve` needs the package kserve, which is not installed", hint=hint) from None
    finally:
        sys.argv = arguments
    return Server, ServerOptions


def _check_device(core: "Core", options: "Options") -> None:
    """Raise what compiling any model for the device raises, before the server listens."""
    from dovetail import GraphBuilder

    builder = GraphBuilder()
    core.compile_model(builder.model([builder.input("x", "float32", (1,))]), options.device, options.properties).close()


def _print(described: dict[str, Any]) -> None:
    print_text(f"Serving {', '.join(described['models'])} on {described['http']}")
    if described["grpc"]:
        print_text(f"and on {described['grpc']} by gRPC")


def _remark_counts(served: "Mapping[str, Versions]") -> None:
    for name, versions in served.items():
        for version, statistics in versions.statistics.items():
            found = statistics.durations
            remark(f"{name}, version {version}: {found['success'].count} requests answered, {found['fail'].count} failed.")
