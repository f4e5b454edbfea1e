"""cancel() ends runs that wait for a device or for their batch; the runs that they waited for are not harmed."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from faulty import Faulty

import dovetail
from dovetail.errors import RunCancelled, TimeLimitExceeded
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.tanh import Tanh
from dovetail_virtual_devices import lanes
from dovetail_virtual_devices.batch import BatchModel

ROW = np.array([[-1, 0.5, 2]], np.float32)
WANT = np.tanh(np.maximum(ROW.astype(np.float64), 0))
LIMIT = 60


class Gated(Faulty):
    """Runs wait for the gate once `holding` is set; `entered` is released by each that waits."""

    holding = False

    def fault(self, number: int) -> None:
        if self.holding:
            self.entered.release()
            assert self.gate.wait(LIMIT)

    def __init__(self, info: Any) -> None:
        super().__init__(info)
        self.gate, self.entered = threading.Event(), threading.Semaphore(0)


def rows() -> dovetail.Model:
    """tanh(relu(x)) of any number of rows."""
    g = dovetail.GraphBuilder()
    return g.model([g.node(Tanh(), g.node(Relu(), g.input("x", "float32", ["N", 3])))])


@pytest.fixture
def held(toy_core: Any) -> Iterator[Any]:
    """`held(device, n)`: n requests of a model on the device A, the first of which runs and waits for the gate."""
    opened: dict[str, Gated] = {}

    def start(device: str, count: int, **properties: Any) -> tuple[Gated, list[dovetail.InferRequest]]:
        core, devices = toy_core(A=Gated)
        compiled = core.compile_model(rows(), device, properties)
        opened.update(devices)
        (gated,) = opened.values()
        gated.holding = True
        requests = [compiled.create_infer_request() for _ in range(count)]
        requests[0].start_async(ROW)
        return gated, requests

    yield start
    for gated in opened.values():
        gated.gate.set()


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once a run waits for a device."""
    found, check_run = threading.Event(), lanes.check_run

    def looking(where: str) -> None:
        found.set()
        check_run(where)

    monkeypatch.setattr(lanes, "check_run", looking)
    return found


def check_cancelled(gated: Gated, first: Any, second: Any, waited_for: str) -> None:
    """Cancel the second run, which waits; the first one, which holds the device, ends as if alone."""
    assert second.cancel()
    with pytest.raises(RunCancelled, match=f"its beginning, where it waits for {waited_for}"):
        second.wait(LIMIT)
    assert first.is_running
    gated.gate.set()
    assert first.wait(LIMIT)
    np.testing.assert_allclose(first.results[0], WANT, rtol=1e-6)


@pytest.mark.parametrize("device", ["MULTI:A", "BATCH:A(1)"])
def test_a_run_that_waits_for_a_device(held: Any, device: str, waiting: threading.Event) -> None:
    gated, (first, second) = held(device, 2, NUM_STREAMS=1)
    assert gated.entered.acquire(timeout=LIMIT)
    second.start_async(ROW)
    assert waiting.wait(LIMIT)
    check_cancelled(gated, first, second, "a device")
    np.testing.assert_allclose(second.infer(ROW)[0], WANT, rtol=1e-6)


def test_a_time_limit_while_a_run_waits_for_a_device(held: Any, waiting: threading.Event) -> None:
    gated, (first, second) = held("MULTI:A", 2, NUM_STREAMS=1, TIME_LIMIT=3600)
    assert gated.entered.acquire(timeout=LIMIT)
    second.start_async(ROW)
    assert waiting.wait(LIMIT)
    second._budget.deadline = 0.0  # the limit passes
    with pytest.raises(TimeLimitExceeded, match=r"waits for a device: the time limit of 3600 seconds has passed"):
        second.wait(LIMIT)
    assert first.is_running


def test_a_run_that_waits_for_its_batch(held: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    began, lead = threading.Event(), BatchModel._lead

    def leading(*arguments: Any) -> None:
        began.set()
        lead(*arguments)

    monkeypatch.setattr(BatchModel, "_lead", leading)
    gated, (first, second) = held("BATCH:A(2)", 2, AUTO_BATCH_TIMEOUT=LIMIT * 1000, NUM_STREAMS=1)
    assert began.wait(LIMIT)  # else the second run may begin the batch
    second.start_async(ROW)  # fills the batch, which the first one runs
    assert gated.entered.acquire(timeout=LIMIT)
    check_cancelled(gated, first, second, "its batch")
