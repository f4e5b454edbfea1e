"""Clients that are slow, silent or half closed: each gets an answer or loses its connection, and the others do not notice."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HEAD = b"POST /v2/models/scale/infer HTTP/1.1\r\nHost: h\r\n"
PATIENCE = 120.0


@pytest.fixture(scope="module")
def service(serving: Any, scale_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server of the model `scale`, y = 2 x, whose clients may do nothing for half a second."""
    path: Path = tmp_path_factory.mktemp("slow") / "scale.onnx"
    with serving(scale_model(path, 2), "-d", "NUMPY", "--client-timeout", 0.5) as found:
        found.wait_ready()
        yield found


def connect(service: Any) -> socket.socket:
    host, _, port = service.http.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def body(rows: int = 1) -> bytes:
    x = {"name": "x", "shape": [rows, 3], "datatype": "FP32", "data": [1] * 3 * rows}
    return json.dumps({"inputs": [x]}).encode()


def received(connection: socket.socket) -> bytes:
    found = b""
    while part := connection.recv(65536):
        found += part
    return found


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"Content-Length: 100\r\n\r\n{"], ids=["nothing", "headers", "body"])
def test_a_silent_client_is_told_and_closed(service: Any, sent: bytes) -> None:
    lines = len(service.errors)
    with connect(service) as connection:
        connection.sendall(sent)
        answer = received(connection)
    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {
        "error": "DT401: nothing of the request came for 0.5 s",
        "code": "DT401",
    }
    assert [line for line in service.errors[lines:] if not line.startswith("Ready after")] == []


def test_headers_have_to_come_in_time(service: Any) -> None:
    with connect(service) as connection:
        connection.settimeout(0.1)
        connection.sendall(HEAD)
        answer = b""
        end = time.monotonic() + PATIENCE
        while not answer and time.monotonic() < end:
            connection.sendall(b"X: y\r\n")  # one of at most 100 each tenth of a second
            try:
                answer = connection.recv(65536)
            except TimeoutError:
                continue
    assert answer.startswith(b"HTTP/1.1 408")


def test_a_body_may_come_slowly(service: Any) -> None:
    content = body(4)
    with connect(service) as connection:
        connection.sendall(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(content))
        for start in range(0, len(content), len(content) // 12):
            connection.sendall(content[start : start + len(content) // 12])
            time.sleep(0.15)  # in all three times as long as it may do nothing
        answer = received(connection)
    assert answer.startswith(b"HTTP/1.1 200")


def test_a_client_that_does_not_read_is_closed(service: Any) -> None:
    content = body(200_000)
    with connect(service) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with pytest.raises(ConnectionError):
            _ask_and_not_read(connection, content)


def _ask_and_not_read(connection: socket.socket, content: bytes) -> None:
    for _ in range(8):  # more than the buffers of the system hold
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(content) + content)
    time.sleep(3)
    received(connection)


def test_a_client_that_has_closed_its_side_gets_its_answer(service: Any) -> None:
    content = body()
    with connect(service) as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(content) + content)
        connection.shutdown(socket.SHUT_WR)
        answer = received(connection)
    assert answer.startswith(b"HTTP/1.1 200")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["outputs"][0]["data"] == [2, 2, 2]
