"""Requests while a model is loaded again, and while one server takes over from another: none is lost, none is wrong.

The whole measure: `DOVETAIL_REQUESTS=100000 pytest contrib/kserve/tests/test_restart.py`.
"""

import itertools
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from geventhttpclient.response import HTTPConnectionClosed
from tritonclient.utils import InferenceServerException

REQUESTS = int(os.environ.get("DOVETAIL_REQUESTS", "400"))
CALLERS = 4
PAUSE = 0.01 if REQUESTS < 10_000 else 0.0
"""Seconds between the requests of a caller, while servers start beside them."""
NOT_BEGUN = ("StatusCode.UNAVAILABLE", "StatusCode.CANCELLED")
"""The answers of gRPC to requests that it has received and a server that stops has not begun."""
PATIENCE = 120.0

Serving = Callable[..., AbstractContextManager[Any]]
ScaleModel = Callable[[Path, float], Path]


@dataclass
class Load:
    """Callers who send rows and check the answers, by REST and by gRPC in turn. `factors` are those that are right.

    `answers` has the factors that each caller got.
    """

    http: str
    grpc: str
    factors: tuple[float, ...]
    numbers: Iterator[int] = field(default_factory=itertools.count)
    lock: threading.Lock = field(default_factory=threading.Lock)
    answers: list[list[float]] = field(default_factory=lambda: [[] for _ in range(CALLERS)])
    stopped: threading.Event = field(default_factory=threading.Event)
    calls: "list[Future[None]]" = field(default_factory=list)

    def call(self, index: int) -> None:
        """Send requests until there are enough answers and nobody waits for more."""
        module = (tritonclient.http, tritonclient.grpc)[index % 2]
        address = (self.http, self.grpc)[index % 2]
        with ExitStack() as stack:
            client = stack.enter_context(module.InferenceServerClient(address))
            while not (self.stopped.is_set() and self.count() >= REQUESTS):
                with self.lock:
                    row = np.float32([[next(self.numbers) % 1000 + 1, -1, index]])
                client, received = self.ask(module, address, stack, client, row)
                factor = float(received[0, 0] / row[0, 0])
                assert factor in self.factors
                np.testing.assert_array_equal(received, np.float32(factor) * row)
                self.answers[index].append(factor)
                self.stopped.wait(PAUSE)

    def ask(self, module: Any, address: str, stack: ExitStack, client: Any, row: Any) -> tuple[Any, Any]:
        """The answer; again where a connection was refused or ended without one, as every client of a service has to."""
        tensor = module.InferInput("x", row.shape, "FP32")
        tensor.set_data_from_numpy(row)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return client, client.infer("scale", [tensor]).as_numpy("y")
            except (OSError, HTTPConnectionClosed, InferenceServerException) as error:
                is_lost = isinstance(error, InferenceServerException) and error.status() not in NOT_BEGUN
                if is_lost or time.monotonic() > end:
                    raise
                client = stack.enter_context(module.InferenceServerClient(address))
                time.sleep(0.01)

    def wait_for(self, count: int) -> None:
        """Wait for so many more answers, as many for each caller: one may begin late. Raises what a caller has raised."""
        wanted = [len(answers) + count // CALLERS for answers in self.answers]
        end = time.monotonic() + PATIENCE + 0.1 * count
        while any(len(answers) < least for answers, least in zip(self.answers, wanted, strict=True)):
            for call in self.calls:
                if call.done():
                    call.result()
            assert time.monotonic() < end, f"{[*map(len, self.answers)]} answers, wanted {wanted}"
            time.sleep(0.01)

    def count(self) -> int:
        """The answers so far."""
        return sum(map(len, self.answers))

    def finish(self) -> None:
        """Wait for the last answers, and raise what a caller has raised."""
        self.stopped.set()
        for call in self.calls:
            call.result()


@pytest.fixture
def under_load() -> Iterator[Callable[..., Load]]:
    """`under_load(service, factors)` begins the load."""
    with ThreadPoolExecutor(CALLERS) as pool:
        loads: list[Load] = []

        def begin(service: Any, *factors: float) -> Load:
            loads.append(Load(service.http, service.grpc, factors))
            loads[-1].calls += [pool.submit(loads[-1].call, index) for index in range(CALLERS)]
            return loads[-1]

        yield begin
        for load in loads:
            load.stopped.set()


def answered(service: Any) -> int:
    """The number of requests that a server says it has answered, when it has ended."""
    (found,) = re.findall(r"scale, version 1: (\d+) requests answered, 0 failed", "".join(service.errors))
    return int(found)


def ports(service: Any) -> tuple[str, str, str, str]:
    return ("--port", service.http.rpartition(":")[2], "--grpc-port", service.grpc.rpartition(":")[2])


def test_no_request_is_lost_when_servers_change_and_models_are_loaded_again(
    serving: Serving, scale_model: ScaleModel, under_load: Callable[..., Load], wait_until: Callable[..., None], tmp_path: Path
) -> None:
    path = scale_model(tmp_path / "scale.onnx", 2)
    common = (path, "-d", "BATCH:NUMPY(4)", "--reload", "0.2", "--reuse-port")
    share = REQUESTS // 4
    with serving(*common) as first:
        first.wait_ready()
        load = under_load(first, 2, 3)
        load.wait_for(share)
        scale_model(path, 3)
        wait_until(lambda: any(3 in factors for factors in load.answers), "the changed model is not used")
        load.wait_for(share)
        with serving(*common, *ports(first)) as second:
            # It listens when it is ready.
            first.process.send_signal(signal.SIGTERM)
            assert first.process.wait(PATIENCE) == 0
            load.wait_for(share)
            notes = second.get("/v2/models/scale/explain")[1]["notes"]
            load.finish()
            metrics = second.get("/metrics")[1]
    assert "rows in" in notes[0]
    assert 'dovetail_reloads_total{model_name="scale",outcome="success"} 0.0' in metrics
    # Nobody gets the old model after the new one.
    assert [factors == sorted(factors) and set(factors) == {2, 3} for factors in load.answers] == [True] * CALLERS
    assert load.count() >= REQUESTS
    assert answered(first) + answered(second) == load.count()
