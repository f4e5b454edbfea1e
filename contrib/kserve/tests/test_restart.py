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
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

REQUESTS = int(os.environ.get("DOVETAIL_REQUESTS", "400"))
CALLERS = 4
PATIENCE = 120.0

Serving = Callable[..., AbstractContextManager[Any]]
ScaleModel = Callable[[Path, float], Path]


@dataclass
class Load:
    """Callers who send rows and check the answers, by REST and by gRPC in turn. `factors` are right, in their order.

    A request that is sent when a later factor has been seen gets no earlier one.
    """

    http: str
    grpc: str
    factors: tuple[float, ...]
    numbers: Iterator[int] = field(default_factory=itertools.count)
    lock: threading.Lock = field(default_factory=threading.Lock)
    answers: list[float] = field(default_factory=list)
    newest: float = 0.0
    retries: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)

    def call(self, index: int) -> None:
        """Send requests until there are enough answers and nobody waits for more."""
        module = (tritonclient.http, tritonclient.grpc)[index % 2]
        address = (self.http, self.grpc)[index % 2]
        with ExitStack() as stack:
            client = stack.enter_context(module.InferenceServerClient(address))
            while not (self.stopped.is_set() and len(self.answers) >= REQUESTS):
                with self.lock:
                    row, known = np.float32([[next(self.numbers) % 1000 + 1, -1, index]]), self.newest
                client, received = self.ask(module, address, stack, client, row)
                factor = float(received[0, 0] / row[0, 0])
                assert factor in self.factors
                assert factor >= known
                np.testing.assert_array_equal(received, np.float32(factor) * row)
                with self.lock:
                    self.answers.append(factor)
                    self.newest = max(self.newest, factor)

    def ask(self, module: Any, address: str, stack: ExitStack, client: Any, row: Any) -> tuple[Any, Any]:
        """The answer; again where a connection was refused or ended without one, as every client of a service has to."""
        tensor = module.InferInput("x", row.shape, "FP32")
        tensor.set_data_from_numpy(row)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return client, client.infer("scale", [tensor]).as_numpy("y")
            except (OSError, InferenceServerException) as error:
                was_refused = isinstance(error, OSError) or error.status() in ("StatusCode.UNAVAILABLE", None)
                if not was_refused or time.monotonic() > end:
                    raise
                with self.lock:
                    self.retries += 1
                client = stack.enter_context(module.InferenceServerClient(address))
                time.sleep(0.01)

    def wait_for(self, count: int) -> None:
        """Wait for so many more answers."""
        wanted, end = len(self.answers) + count, time.monotonic() + PATIENCE + 0.1 * count
        while len(self.answers) < wanted:
            assert time.monotonic() < end
            time.sleep(0.01)


@pytest.fixture
def under_load() -> Iterator[Callable[..., Load]]:
    """`under_load(service, factors)` begins the load; it ends with the test, and raises what a caller has raised."""
    with ThreadPoolExecutor(CALLERS) as pool:
        loads, calls = [], []

        def begin(service: Any, *factors: float) -> Load:
            loads.append(Load(service.http, service.grpc, factors))
            calls.extend(pool.submit(loads[-1].call, index) for index in range(CALLERS))
            return loads[-1]

        yield begin
        for load in loads:
            load.stopped.set()
        for call in calls:
            call.result()


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
        wait_until(lambda: load.answers[-1:] == [3], "the changed model is not used")
        load.wait_for(share)
        with serving(*common, *ports(first)) as second:
            # It listens when it is ready.
            first.process.send_signal(signal.SIGTERM)
            assert first.process.wait(PATIENCE) == 0
            load.wait_for(share)
            notes = second.get("/v2/models/scale/explain")[1]["notes"]
            load.stopped.set()
            wait_until(lambda: len(load.answers) >= REQUESTS, "answers are missing")
            under_way = threading.active_count()
            wait_until(lambda: threading.active_count() <= under_way, "callers have not ended")
            metrics = second.get("/metrics")[1]
    assert "rows in" in notes[0]
    assert 'dovetail_reloads_total{model_name="scale",outcome="success"} 0.0' in metrics
    switched = load.answers.index(3)
    assert set(load.answers[:switched]) == {2.0}
    assert answered(first) + answered(second) == len(load.answers)
