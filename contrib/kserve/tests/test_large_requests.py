"""Requests and answers of many bytes: whole, without delay, and in memory that is used again."""

import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from dovetail_kserve import memory

PIECE = 8 * 2**20
"""The most bytes of a body that reach the application at once."""


@pytest.fixture(scope="module")
def service(serving: Any, scale_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server of the model `scale`, y = 2 x."""
    path: Path = tmp_path_factory.mktemp("large") / "scale.onnx"
    with serving(scale_model(path, 2), "-d", "NUMPY") as found:
        found.wait_ready()
        yield found


@pytest.fixture(params=["http", "grpc"])
def infer(request: pytest.FixtureRequest, service: Any) -> Iterator[Any]:
    """`infer(x)` by tritonclient."""
    module = {"http": tritonclient.http, "grpc": tritonclient.grpc}[request.param]
    with module.InferenceServerClient(getattr(service, request.param)) as client:

        def call(x: Any) -> Any:
            given = module.InferInput("x", x.shape, "FP32")
            given.set_data_from_numpy(x)
            return client.infer("scale", [given]).as_numpy("y")

        yield call


def rows(count: int) -> Any:
    return np.random.default_rng(count).standard_normal((count, 3), np.float32)


@pytest.mark.parametrize("count", [1, PIECE // 12, PIECE // 12 + 9_999])
def test_a_body_of_any_number_of_pieces_is_whole(infer: Any, count: int) -> None:
    x = rows(count)
    np.testing.assert_array_equal(infer(x), 2 * x)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such setting")
def test_later_requests_use_the_memory_of_earlier_ones(service: Any, infer: Any) -> None:
    def page_faults() -> int:
        fields = Path(f"/proc/{service.process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[7])

    x = rows(2**20)
    for _ in range(8):
        infer(x)
    before = page_faults()
    for _ in range(8):
        infer(x)
    # A request has 3,072 pages, and is there several times: received, joined, as an answer.
    assert page_faults() - before < 8 * 3072, page_faults() - before


@pytest.mark.parametrize(("size", "kept"), [(3, 3), (2**32, 2**31 - 1)])
def test_memory_that_is_kept_is_a_number_that_c_can_hold(size: int, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[int, int] = {}
    library = SimpleNamespace(mallopt=lambda parameter, value: given.setdefault(parameter, value))
    monkeypatch.setattr(memory, "platform", SimpleNamespace(libc_ver=lambda: ("glibc", "2.36")))
    monkeypatch.setattr(memory, "ctypes", SimpleNamespace(CDLL=lambda _: library))
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    assert memory.keep_freed_memory(size)
    assert given == {-1: kept, -3: 32 * 2**20}
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "100")
    assert not memory.keep_freed_memory(size)


# In a process of its own: the classes of the protocol that kserve and tritonclient define collide.
OPTION = """
import asyncio, socket
import uvicorn
from uvicorn.server import ServerState
from dovetail_kserve.http_server import LimitedProtocol
from dovetail_kserve.limits import Limits

async def main():
    loop = asyncio.get_running_loop()
    connected = loop.create_future()

    class Protocol(LimitedProtocol):
        def connection_made(self, transport):
            super().connection_made(transport)
            connected.set_result(transport.get_extra_info("socket"))

    config = uvicorn.Config(main, http=Protocol)
    listener = socket.create_server(("127.0.0.1", 0))
    make = lambda: Protocol(config, ServerState(), {}, limits=Limits(100, 60))
    await loop.create_server(make, sock=listener)
    _, writer = await asyncio.open_connection(*listener.getsockname())
    print((await connected).getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0)

asyncio.run(main())
"""


def test_answers_are_sent_without_delay() -> None:
    done = subprocess.run([sys.executable, "-c", OPTION], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
