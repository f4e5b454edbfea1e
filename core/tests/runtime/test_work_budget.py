"""TIME_LIMIT, cancel() and Ctrl-C end runs between nodes and between iterations; the request is usable afterwards."""

import _thread
import asyncio
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.devices.work_budget import WorkBudget, current_budget
from dovetail.errors import RunCancelled, TimeLimitExceeded, UsageError
from dovetail.graph import Graph, Model
from dovetail.op import FLOATS, Operator
from dovetail.planning.held import HeldBytes
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.loop import Loop
from dovetail_ops_onnx.neg import Neg


class Flag:
    """An event that an interrupt cannot break: one that arrives in `threading.Event.set` may leave its lock taken for ever."""

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()

    def clear(self) -> None:
        self._lock.acquire(blocking=False)

    def set(self) -> None:
        if self._lock.locked():
            self._lock.release()

    def wait(self) -> bool:
        return self._lock.acquire(timeout=60)


ENTERED = Flag()


class Report(Operator):
    """The input; the first run of it sets an event, so that a test knows that the model runs."""

    domain = "test"
    inputs = ("X: T",)
    types = {"T": FLOATS}

    def reference(self, X: Any) -> Any:
        ENTERED.set()
        return X


@pytest.fixture(autouse=True)
def _not_entered() -> None:
    ENTERED.clear()


def _body() -> Graph:
    g = dovetail.GraphBuilder()
    _, going, x = g.input("i", "int64", []), g.input("going", "bool", []), g.input("v", "float32", [2])
    seen = g.node(Report(), x, name="report")
    return g.graph([g.node(Identity(), going, name="still"), g.node(Neg(), seen, name="turn")], "body")


def _model() -> Model:
    """Runs for ever where `going` is true; gives x where it is false."""
    g = dovetail.GraphBuilder()
    going, x = g.input("going", "bool", []), g.input("x", "float32", [2])
    return g.model([g.node(Loop(body=_body()), "", going, x, name="endless", outputs=["y"])])


def _feeds(going: bool) -> dict[str, Any]:
    return {"going": np.array(going), "x": np.array([1, 2], np.float32)}


@pytest.fixture
def compile_with() -> Callable[..., dovetail.CompiledModel]:
    def compile_model(**properties: Any) -> dovetail.CompiledModel:
        return dovetail.Core().compile_model(_model(), "NUMPY", properties)

    return compile_model


def _usable(request: Any) -> bool:
    return bool(request.infer(_feeds(False))["y"].tolist() == [1, 2])


def test_an_endless_loop_ends_at_the_time_limit(compile_with: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of the property is an hour, which other runs keep however busy the machine is."""
    request = compile_with(TIME_LIMIT=3600).create_infer_request()
    given: list[float] = []
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr("dovetail.runtime.infer_request.WorkBudget", lambda seconds: given.append(seconds) or WorkBudget(0.2))
            with pytest.raises(TimeLimitExceeded, match=r"node '.*the time limit of 0\.2 seconds has passed") as caught:
                request.infer(_feeds(True))
        assert caught.value.code == "DT403"
        assert "'endless'" in str(caught.value)
        assert _usable(request)
    assert given == [3600, 3600]


def test_a_run_in_the_background_is_cancelled(compile_with: Any) -> None:
    request = compile_with().create_infer_request()
    request.start_async(_feeds(True))
    ENTERED.wait()
    assert request.cancel()
    with pytest.raises(RunCancelled, match=r"the run was cancelled at node '"):
        request.wait()
    assert not request.cancel()
    assert _usable(request)


@pytest.mark.parametrize("runs_before", [0, 2])
def test_another_thread_cancels_a_blocking_run(compile_with: Any, runs_before: int) -> None:
    """Also one with inputs of the same types as the last run, which takes fewer steps."""
    request = compile_with().create_infer_request()
    for _ in range(runs_before):
        assert _usable(request)
    cancelling = threading.Thread(target=lambda: ENTERED.wait() and request.cancel())
    cancelling.start()
    with pytest.raises(RunCancelled):
        request.infer(_feeds(True))
    cancelling.join()
    assert current_budget() is None
    assert _usable(request)


class WhileRead:
    """An input; another thread does something while it is read."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        acting = threading.Thread(target=self._action)
        acting.start()
        acting.join()
        return np.array([1, 2], np.float32)


def _chain(nodes: int) -> Any:
    """A request of a model of short nodes."""
    g = dovetail.GraphBuilder()
    value = g.input("x", "float32", [2])
    for i in range(nodes):
        value = g.node(Report() if i else Neg(), value, name=f"n{i}")
    return dovetail.Core().compile_model(g.model([value]), "NUMPY").create_infer_request()


@pytest.mark.parametrize("way", ["infer", "start_async", "trace"])
@pytest.mark.parametrize("before", ["nothing", "a run"])
def test_a_run_is_cancelled_while_its_inputs_are_read(way: str, before: str) -> None:
    """The request counts as running by then: what says that there is a run ends it, not the one before."""
    request, found = _chain(2), list[bool]()
    x = np.array([1, 2], np.float32)
    if before == "a run":
        request.infer(x)

    def run() -> None:
        getattr(request, way)({"x": WhileRead(lambda: found.append(request.cancel()))})
        request.wait()

    for _ in range(2):  # also after a run that was cancelled
        with pytest.raises(RunCancelled, match="the run was cancelled at node 'n0'"):
            run()
    assert found == [True, True]
    assert request.infer(x)[0].tolist() == [-1, -2]


def test_a_trace_of_a_short_node_is_cancelled_between_two_runs() -> None:
    request = _chain(1)
    with pytest.raises(RunCancelled, match="the run was cancelled at its beginning"):
        request.trace({"x": WhileRead(request.cancel)}, runs=1000)


def test_a_cancelled_task_ends_its_run(compile_with: Any) -> None:
    request = compile_with().create_infer_request()

    async def run() -> None:
        request.start_async(_feeds(True))
        await asyncio.to_thread(ENTERED.wait)

        async def results() -> Any:
            return await request

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(results(), 0.01)

    asyncio.run(run())
    with pytest.raises(RunCancelled):
        request.wait()
    assert _usable(request)


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_ends_a_loop(compile_with: Any) -> None:
    request = compile_with().create_infer_request()
    interrupting = threading.Thread(target=lambda: ENTERED.wait() and _thread.interrupt_main())
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        request.infer(_feeds(True))
    interrupting.join()
    assert _usable(request)


def test_no_interrupt_is_lost_where_values_of_a_loop_are_dropped() -> None:
    """Python ignores what is raised in a finalizer: a value that is dropped must run no Python code."""
    held = HeldBytes(_body().nodes[0], 100)
    array, calls = np.zeros(20, np.float32), []
    held.add([array])
    sys.setprofile(lambda frame, event, argument: calls.append(event))
    del array
    sys.setprofile(None)
    assert "call" not in calls
    held.add([np.zeros(20, np.float32)])  # the one before does not count


def test_planning_ends_at_the_time_limit() -> None:
    g = dovetail.GraphBuilder()
    value = g.input("x", "float32", [2])
    for i in range(50):
        value = g.node(Neg(), value, name=f"n{i}")
    with pytest.raises(TimeLimitExceeded, match=r"node 'n\d+' \(Neg\): the time limit of 1e-09 seconds has passed"):
        dovetail.Core().compile_model(g.model([value]), "NUMPY", {"TIME_LIMIT": 1e-9})


class Sleep(Operator):
    """The input, after 20 ms."""

    domain = "test"
    inputs = ("X: T",)
    types = {"T": FLOATS}

    def reference(self, X: Any) -> Any:
        ENTERED.set()
        time.sleep(0.02)
        return X


def test_a_run_ends_between_two_nodes_of_a_device() -> None:
    g = dovetail.GraphBuilder()
    value = g.input("x", "float32", [2])
    for i in range(200):
        value = g.node(Sleep(), value, name=f"n{i}")
    model = g.model([value])
    x = np.zeros(2, np.float32)
    with pytest.raises(TimeLimitExceeded, match=r"node 'n\d+' \(test::Sleep\): the time limit of 0.2 seconds has passed"):
        dovetail.Core().compile_model(model, "NUMPY", {"TIME_LIMIT": 0.2, "PLAN_CACHE": 1})(x)
    request = dovetail.Core().compile_model(model, "NUMPY").create_infer_request()
    ENTERED.clear()
    request.start_async(x)
    ENTERED.wait()
    assert request.cancel()
    with pytest.raises(RunCancelled, match=r"the run was cancelled at node 'n\d+'"):
        request.wait()


@pytest.mark.parametrize("value", [0, -1.5, True, "2", None])
def test_time_limits_that_are_refused(compile_with: Any, value: Any) -> None:
    with pytest.raises(UsageError, match=r"property TIME_LIMIT is .*; accepted: a positive number of seconds"):
        compile_with(TIME_LIMIT=value)
