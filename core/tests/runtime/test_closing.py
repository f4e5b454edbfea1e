"""`close()` of models and sessions while they are used: it waits for what runs, and what comes after is refused."""

import gc
import sysconfig
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import Executable, ExecutableRequest
from dovetail.errors import UsageError
from dovetail.op import FLOATS, Operator
from dovetail_ops_onnx.add import Add

X = np.arange(3, dtype=np.float32)
LIMIT = 60
"""Seconds after which a thread that should have ended counts as hanging."""
GATE = threading.Event()
STARTED = threading.Semaphore(0)


class Gated(Operator):
    """Says that it runs, waits for the gate, adds one."""

    domain = "test"
    inputs = ("X: T",)
    types = {"T": FLOATS}

    def reference(self, X: Any) -> Any:
        STARTED.release()
        assert GATE.wait(LIMIT)
        return X + X.dtype.type(1)


class Watch:
    """Records whether an executable was closed while one of its requests ran, or before one of them was closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, compiled: dovetail.CompiledModel) -> None:
        (plan,) = compiled._plans.copy().values()
        self.executable: Executable = plan.steps[0].executable
        self.events: list[str] = []
        closing, creating = self.executable.close, self.executable.create_request

        def close() -> None:
            self.events.append("executable closed")
            closing()

        def create_request() -> ExecutableRequest:
            request = creating()
            running, freeing = request.run, request.close

            def run(inputs: Any) -> Any:
                self.events.append("run begins")
                try:
                    return running(inputs)
                finally:
                    self.events.append("run ends")

            def free() -> None:
                self.events.append("request closed")
                freeing()

            monkeypatch.setattr(request, "run", run, raising=False)
            monkeypatch.setattr(request, "close", free, raising=False)
            return request

        monkeypatch.setattr(self.executable, "close", close, raising=False)
        monkeypatch.setattr(self.executable, "create_request", create_request, raising=False)


def wait_until_closed(compiled: dovetail.CompiledModel) -> None:
    """Wait until `close`, in another thread, has begun to refuse runs."""
    end = time.monotonic() + LIMIT
    while not compiled._closed:
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.fixture
def core() -> Iterator[dovetail.Core]:
    with dovetail.Core(plugins="numpy", config=False) as core:
        yield core
        GATE.set()


@pytest.fixture
def compiled(core: dovetail.Core) -> dovetail.CompiledModel:
    while STARTED.acquire(blocking=False):
        pass  # runs of the test before
    GATE.set()
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", [3])
    return core.compile_model(g.model([g.node(Gated(), x, outputs=["y"])]), "NUMPY")


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(8)
    yield pool
    GATE.set()
    pool.shutdown(wait=False, cancel_futures=True)


def started(count: int = 1) -> None:
    for _ in range(count):
        assert STARTED.acquire(timeout=LIMIT)


def test_a_closed_model_refuses_every_way_of_running(compiled: dovetail.CompiledModel) -> None:
    request, queue = compiled.create_infer_request(), dovetail.AsyncInferQueue(compiled, 2)
    np.testing.assert_array_equal(compiled(X)[0], X + 1)
    np.testing.assert_array_equal(request.infer(X)[0], X + 1)
    compiled.close()
    for use in (
        lambda: compiled(X),
        lambda: request.infer(X),
        lambda: request.start_async(X),
        lambda: queue.start_async(X),
        compiled.create_infer_request,
        lambda: compiled.submit(lambda: None),
    ):
        with pytest.raises(UsageError, match=r"the compiled model was closed\n.*compile it again"):
            use()
    queue.wait_all()
    np.testing.assert_array_equal(request.results[0], X + 1)
    request.close()


def test_close_waits_for_the_runs(
    compiled: dovetail.CompiledModel, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run in a thread, one in the background; both give their results, and only then is anything freed."""
    watch = Watch(monkeypatch, compiled)
    GATE.clear()
    request = compiled.create_infer_request()
    run = threads.submit(lambda: compiled(X)[0])
    request.start_async(X)
    started(2)
    closing = [threads.submit(compiled.close) for _ in range(3)]
    wait_until_closed(compiled)
    with pytest.raises(UsageError, match="the compiled model was closed"):
        compiled(X)
    assert not any(c.done() for c in closing)
    GATE.set()
    np.testing.assert_array_equal(run.result(LIMIT), X + 1)
    assert request.wait(LIMIT)
    for c in closing:
        c.result(LIMIT)
    compiled.close()
    ends, closed = ([i for i, event in enumerate(watch.events) if event == one] for one in ("run ends", "request closed"))
    assert (len(ends), len(closed)) == (2, 2)
    assert all(end < close for end, close in zip(ends, closed, strict=True)), watch.events
    assert watch.events[-1] == "executable closed"


def test_work_that_waits_in_a_queue_is_done(compiled: dovetail.CompiledModel, threads: ThreadPoolExecutor) -> None:
    """More runs than workers were accepted before: all of them end."""
    queue = dovetail.AsyncInferQueue(compiled, 100)
    GATE.clear()
    for index in range(100):
        queue.start_async(X + index)
    closing = threads.submit(compiled.close)
    wait_until_closed(compiled)
    GATE.set()
    closing.result(LIMIT)
    queue.wait_all()
    for index, request in enumerate(queue):
        np.testing.assert_array_equal(request.results[0], X + index + 1)


@pytest.mark.parametrize("what", ["model", "session"])
def test_close_in_a_callback_returns_at_once(
    what: str, core: dovetail.Core, compiled: dovetail.CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every worker closes in its callback while others wait for a worker; a thread of its own frees when all have ended."""
    watch = Watch(monkeypatch, compiled)
    closed: list[int] = []
    queue = dovetail.AsyncInferQueue(compiled, 100)
    close = compiled.close if what == "model" else core.close

    def callback(request: dovetail.InferRequest, index: int) -> None:
        close()
        closed.append(index)

    queue.set_callback(callback)
    GATE.clear()
    for index in range(100):
        queue.start_async(X, index)
    GATE.set()
    queue.wait_all()
    assert sorted(closed) == list(range(100))
    close()  # waits for the thread
    assert watch.events[-1] == "executable closed"
    with pytest.raises(UsageError, match="the compiled model was closed"):
        compiled(X)


def test_closing_a_session_closes_its_models(compiled: dovetail.CompiledModel, core: dovetail.Core, threads: Any) -> None:
    GATE.clear()
    run = threads.submit(lambda: compiled(X)[0])
    started()
    closing = threads.submit(core.close)
    wait_until_closed(compiled)
    assert not closing.done()
    GATE.set()
    closing.result(LIMIT)
    np.testing.assert_array_equal(run.result(LIMIT), X + 1)
    with pytest.raises(UsageError, match="the compiled model was closed"):
        compiled(X)
    again = core.compile_model(compiled.model, "NUMPY")  # which opens the device once more
    np.testing.assert_array_equal(again(X)[0], X + 1)


def test_a_request_keeps_nothing_alive(compiled: dovetail.CompiledModel) -> None:
    """The model knows its requests, and yet they go when the user drops them."""
    request = compiled.create_infer_request()
    request.infer(X)
    assert len(compiled._requests) == 1
    del request
    gc.collect()
    assert len(compiled._requests) == 0


def test_an_interrupt_leaves_the_request_usable(compiled: dovetail.CompiledModel) -> None:
    """Whatever the run raises, the next one starts and close() does not wait for ever."""
    request = compiled.create_infer_request()
    request._run = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        request.infer(X)
    del request._run
    np.testing.assert_array_equal(request.infer(X)[0], X + 1)
    compiled.close()


@pytest.mark.parametrize("overridable", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_a_model_is_freed_when_nobody_refers_to_it(closed: bool, overridable: bool) -> None:
    """At once: weights must not wait for a garbage collection, which counts objects and not bytes."""
    if not closed and sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("without the GIL CPython frees what a threading.local holds, such as requests, at a later collection")
    g = dovetail.GraphBuilder()
    model = g.model([g.node(Add(), g.node(Gated(), g.input("x", "float32", [None])), g.constant(X, name="w"))])
    if overridable:
        model = replace(model, overridable={"w": model.graph.types["w"]})
    compiled = dovetail.Core(config=False).compile_model(model, "NUMPY")
    GATE.set()
    gc.collect()
    gc.disable()
    try:
        compiled({"x": X})
        (plan,) = compiled._plans.copy().values()
        freed = [weakref.ref(one) for one in (model, compiled, plan.steps[0].executable)]
        if closed:
            compiled.close()
        del model, compiled, plan, g
        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            gc.collect()  # such a CPython leaves references to functions and methods to the collector
        assert [one() for one in freed] == [None] * 3
    finally:
        gc.enable()
        GATE.clear()
