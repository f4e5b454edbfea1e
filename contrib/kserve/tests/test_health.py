"""Health by gRPC's standard service, and HEAD and OPTIONS, as balancers and proxies ask. Messages are written as bytes."""

import http.client
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import grpc
import pytest

SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"


def check(service: Any, name: str = "") -> Any:
    """The bytes of the answer, or the status of the error."""
    message = b"\x0a" + bytes([len(name)]) + name.encode() if name else b""
    with grpc.insecure_channel(service.grpc) as channel:
        try:
            return channel.unary_unary("/grpc.health.v1.Health/Check")(message, timeout=60)
        except grpc.RpcError as error:
            return error.code()  # type: ignore[attr-defined]  # errors of calls are calls, too


@pytest.mark.parametrize("name", ["", "readiness", "liveness", "inference.GRPCInferenceService", "scale"])
def test_what_is_ready_is_serving(service: Any, name: str) -> None:
    assert check(service, name) == SERVING


def test_an_unknown_name(service: Any) -> None:
    assert check(service, "nix") is grpc.StatusCode.NOT_FOUND


def test_a_server_that_drains_is_alive_and_not_serving(
    serving: Callable[..., AbstractContextManager[Any]],
    scale_model: Callable[[Path, float], Path],
    wait_until: Callable[[Callable[[], bool], str], None],
    tmp_path: Path,
) -> None:
    with serving(scale_model(tmp_path / "scale.onnx", 2), "-d", "NUMPY", "--drain-delay", 3) as service:
        service.wait_ready()
        service.process.terminate()
        wait_until(lambda: check(service) == NOT_SERVING, "it is still serving")
        assert check(service, "liveness") == SERVING


def asked(service: Any, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(service.http, timeout=60)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "status"),
    [("/v2/health/live", 200), ("/v2/health/ready", 200), ("/v2/models/scale", 200), ("/metrics", 200), ("/v2/models/nix", 404)],
)
def test_head_is_get_without_the_body(service: Any, path: str, status: int) -> None:
    head, get = asked(service, "HEAD", path), asked(service, "GET", path)
    assert (head[0], get[0], head[2]) == (status, status, b"")
    assert head[1]["content-type"] == get[1]["content-type"]


def test_other_methods_are_refused_with_those_that_are_allowed(service: Any) -> None:
    status, headers, _ = asked(service, "OPTIONS", "/v2/models/scale/infer")
    assert (status, headers["allow"]) == (405, "POST")
