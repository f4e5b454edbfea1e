"""Long runs end between launches when they are cancelled or take too long, on every kind of queue; the request works on."""

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import WorkBudget, current_budget
from dovetail.errors import RunCancelled, TimeLimitExceeded
from dovetail_gpu_opencl import request
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_ops_onnx.mat_mul import MatMul

SIZE = 384


def model(nodes: int, size: int = SIZE) -> dovetail.Model:
    """x times the identity, over and over: some ms each."""
    g = dovetail.GraphBuilder()
    value = g.input("x", "float32", [size, size])
    w = g.input("w", "float32", [size, size])
    for index in range(nodes):
        value = g.node(MatMul(), value, w, name=f"product{index}")
    return g.model([value])


@pytest.fixture(params=["IN_ORDER", "OUT_OF_ORDER"])
def one(request: Any) -> Any:
    """A request that has not run yet."""
    return dovetail.Core().compile_model(model(40), "OPENCL", {"QUEUE": request.param}).create_infer_request()


@pytest.fixture
def feeds(rng: np.random.Generator) -> dict[str, Any]:
    return {"x": rng.standard_normal((SIZE, SIZE)).astype(np.float32), "w": np.eye(SIZE, dtype=np.float32)}


def at_each_wait(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Let requests do something more after they have waited for the device between two parts of a run."""
    for kind in (request.InOrderRequest, request.EventRequest):
        wait = kind._finish
        monkeypatch.setattr(kind, "_finish", lambda self, wait=wait: (wait(self), action()))


def test_a_cancelled_run_ends_and_the_request_works_on(one: Any, feeds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, cancelled = threading.Event(), threading.Event()
    at_each_wait(monkeypatch, lambda: (entered.set(), cancelled.wait(60)))
    one.start_async(feeds)
    assert entered.wait(60)
    assert one.cancel()
    cancelled.set()
    with pytest.raises(RunCancelled, match=r"the run was cancelled at node 'product8' \(MatMul\)"):
        one.wait()
    np.testing.assert_allclose(one.infer(feeds)[0], feeds["x"], rtol=1e-5)


def test_a_time_limit_names_the_node(one: Any, feeds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        at_each_wait(patch, lambda: setattr(current_budget(), "deadline", 0.0))
        budget = WorkBudget(3600)
        patch.setattr("dovetail.runtime.infer_request.WorkBudget", lambda seconds: budget)
        with pytest.raises(TimeLimitExceeded, match=r"node 'product8' \(MatMul\): the time limit of 3600 seconds"):
            one.infer(feeds)
    np.testing.assert_allclose(one.infer(feeds)[0], feeds["x"], rtol=1e-5)


def test_short_runs_are_enqueued_at_once_and_long_ones_in_parts(feeds: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    at_each_wait(monkeypatch, lambda: waits.append(1))
    short = dovetail.Core().compile_model(model(40, 2), "OPENCL").create_infer_request()
    small = {name: array[:2, :2] for name, array in feeds.items()}
    clock = iter(range(10**6))
    monkeypatch.setattr(request, "perf_counter", lambda: 0)  # every run is short, even on a busy machine
    for _ in range(8):
        np.testing.assert_allclose(short.infer(small)[0], small["x"], rtol=1e-5)
    waits.clear()
    short.infer(small)
    assert waits == [], "every run before was short"
    monkeypatch.setattr(request, "perf_counter", lambda: next(clock))  # each look at the clock is a second later
    short.infer(small)
    short.infer(small)
    assert len(waits) > 30, "after a long run, one launch after the other"
    np.testing.assert_allclose(short.infer(small)[0], small["x"], rtol=1e-5)


def test_a_first_run_is_in_parts_unless_a_run_of_other_sizes_was_short(device: OpenCLDevice, bench: Any) -> None:
    """By its memory: one of other sizes takes as much longer as it has more of it."""
    device._packed.runs.clear()

    def compiled(rows: int) -> tuple[Any, Any]:
        graph, feeds = bench.single(bench.op("Softmax"), [np.ones((rows, 8), np.float32)])
        executable = device.compile(graph, {})
        return executable, (executable.create_request(), feeds)

    first, (earlier, feeds) = compiled(3)
    assert first.expected() == math.inf
    assert earlier._part == request.FIRST_PART
    earlier.run(feeds)
    second, (short, _) = compiled(5)
    first.took(request.LONG / 100)
    assert request.LONG / 100 <= second.expected() < request.LONG / 10
    assert compiled(5)[1][0]._part == len(short._launches) < request.FIRST_PART
    large, (long, _) = compiled(5000)
    assert large.expected() > request.LONG
    assert long._part == request.FIRST_PART
