"""Whether a Ray answers at an address: Ray itself tries for minutes."""

import os
import socket

from dovetail.errors import UsageError

__all__ = ["check_address"]

_PATIENCE = 10.0
"""Seconds to wait for a connection, and for each part of the answer."""

_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How a client of gRPC begins: the preface of HTTP/2, and no settings."""

_SETTINGS = 4
"""The type of the frame with which a server of HTTP/2 begins, in the fourth byte."""


def check_address(address: str) -> None:
    """Raise `UsageError` where nothing listens at HOST:PORT, or what listens does not answer as a Ray does.

    Other addresses (`auto`, `ray://...`), and clusters with TLS, are left to Ray.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in host:
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE) as connection:
            if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
                _check_greeting(connection)
    except (OSError, OverflowError) as error:
        raise UsageError(f"no Ray answers at {address}: {error}", hint="start one: ray start --head") from error


def _check_greeting(connection: socket.socket) -> None:
    connection.sendall(_GREETING)
    with connection.makefile("rb") as answer:
        frame = answer.read(9)
    if frame[3:4] != bytes([_SETTINGS]):
        raise ConnectionError("another program listens there; a Ray has port 6379, unless `ray start --port` says another one")
