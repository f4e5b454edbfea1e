"""cancel(), TIME_LIMIT and Ctrl-C end a run in the middle of a node, which goes on without it and harms no later run."""

import _thread
import asyncio
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.devices import interruptible
from dovetail.errors import RunCancelled, TimeLimitExceeded
from dovetail.graph import Graph, Model
from dovetail.op import FLOATS, Operator
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.loop import Loop
from dovetail_ops_onnx.non_zero import NonZero

LIMIT = 30
"""Seconds after which a node that should go on, or a run that should have ended, counts as hanging."""

HOLD = np.full((2, 3), 7, np.float32)
PASS = np.full((2, 3), 5, np.float32)

GATE = threading.Event()
ENTERED = threading.Semaphore(0)
INSIDE: set[int] = set()


def wait_inside() -> None:
    INSIDE.add(threading.get_ident())
    try:
        ENTERED.release()
        assert GATE.wait(LIMIT)
    finally:
        INSIDE.discard(threading.get_ident())


class Hold(Operator):
    """X + 1. Where X begins with 7 it first waits for the gate, in one call that other threads cannot end."""

    domain = "test"
    inputs = ("X: T",)
    types = {"T": FLOATS}

    def flops(self, inputs: Any, outputs: Any) -> int:
        return 10**12

    def reference(self, X: Any) -> Any:
        if X.size and X.flat[0] == 7:
            wait_inside()
        return X + X.dtype.type(1)


@pytest.fixture(autouse=True)
def _gate() -> Iterator[None]:
    GATE.clear()
    while ENTERED.acquire(blocking=False):
        pass
    yield
    open_gate()


@pytest.fixture(params=["NUMPY", "ONEDNN", "AUTO:NUMPY", "MULTI:NUMPY,NUMPY", "BATCH:NUMPY(4)", "HETERO:NUMPY"])
def device(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A device. BATCH tries the model when it compiles it, which takes no time here: its later runs count as long, too."""
    if request.param.startswith("BATCH"):
        monkeypatch.setattr(interruptible, "_LONG", -1.0)
    return str(request.param)


def open_gate() -> None:
    """Let nodes go on, and wait for the end of those that runs have left."""
    GATE.set()
    for thread in threading.enumerate():
        if thread.name == "dovetail-call" and thread.is_alive():  # one that was interrupted as it started may never begin
            thread.join(LIMIT)
    assert not INSIDE
    assert not interruptible.are_calls_left()


def held(rows: int | str = "N") -> Model:
    g = dovetail.GraphBuilder()
    return g.model([g.node(Hold(), g.input("x", "float32", [rows, 3]), name="long", outputs=["y"])])


def compiled_for(device: str, model: Model | None = None, **properties: Any) -> dovetail.CompiledModel:
    return dovetail.Core().compile_model(model or held(), device, properties)


@contextmanager
def at_entry(action: Callable[[], object]) -> Iterator[None]:
    """Do something once the node runs."""
    thread = threading.Thread(target=lambda: ENTERED.acquire(timeout=LIMIT) and action())
    thread.start()
    yield
    thread.join(LIMIT)


def test_a_cancelled_run_leaves_its_node(device: str) -> None:
    request = compiled_for(device).create_infer_request()
    with at_entry(request.cancel), pytest.raises(RunCancelled, match=r"the run was cancelled at node 'long' \(test::Hold\)"):
        request.infer(HOLD)
    assert INSIDE, "the node goes on"
    np.testing.assert_array_equal(request.infer(PASS)["y"], PASS + 1)
    assert INSIDE
    open_gate()
    np.testing.assert_array_equal(request.infer(HOLD)["y"], HOLD + 1)


def expire(request: dovetail.InferRequest) -> None:
    """Let the time limit of the request's run pass."""
    assert request._budget is not None
    request._budget.deadline = 0.0


def test_a_time_limit_ends_a_run_in_a_node(device: str) -> None:
    request = compiled_for(device, TIME_LIMIT=3600).create_infer_request()
    found = r"node 'long' \(test::Hold\): the time limit of 3600 seconds has passed"
    with at_entry(lambda: expire(request)), pytest.raises(TimeLimitExceeded, match=found):
        request.infer(HOLD)
    assert INSIDE
    np.testing.assert_array_equal(request.infer(PASS)["y"], PASS + 1)


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_ends_a_run_in_a_node(device: str) -> None:
    request = compiled_for(device).create_infer_request()
    with at_entry(_thread.interrupt_main), pytest.raises(KeyboardInterrupt):
        request.infer(HOLD)
    assert INSIDE
    np.testing.assert_array_equal(request.infer(PASS)["y"], PASS + 1)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("way", ["cancel", "interrupt", "limit"])
def test_a_traced_run_leaves_its_node_and_records_nothing(device: str, way: str) -> None:
    compiled = compiled_for(device, TIME_LIMIT=3600)
    with dovetail.Trace() as trace:
        request = compiled.create_infer_request()
    ways: dict[str, tuple[Callable[[], object], type[BaseException]]] = {
        "cancel": (request.cancel, RunCancelled),
        "interrupt": (_thread.interrupt_main, KeyboardInterrupt),
        "limit": (lambda: expire(request), TimeLimitExceeded),
    }
    action, error = ways[way]
    with at_entry(action), pytest.raises(error) as caught:
        request.infer(HOLD)
    assert way == "interrupt" or "node 'long' (test::Hold)" in str(caught.value)
    assert INSIDE, "the node goes on"
    np.testing.assert_array_equal(request.infer(PASS)["y"], PASS + 1)
    found = trace.slices
    assert len([one for one in found if one.kind == "request"]) == 1
    open_gate()
    assert trace.slices == found, "the node that was left is not recorded when it ends"


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_the_trace_of_a_node_on_a_thread(device: str) -> None:
    compiled = compiled_for(device)
    with dovetail.Trace() as trace:
        request = compiled.create_infer_request()
    with at_entry(request.cancel), pytest.raises(RunCancelled):
        request.infer(HOLD)
    for _ in range(2):
        request.infer(PASS)
    wholes = [one for one in trace.slices if one.kind == "request"]
    nodes = [one for one in trace.slices if one.placed]
    assert [node.name for node in nodes] == ["long", "long"]
    for whole, node in zip(wholes, nodes, strict=True):
        assert whole.start <= node.start <= node.end <= whole.end
        assert node.track == whole.track == threading.current_thread().name


def test_cancelling_a_request_that_makes_a_trace(device: str) -> None:
    request = compiled_for(device).create_infer_request()
    with at_entry(request.cancel), pytest.raises(RunCancelled, match="'long'"):
        request.trace(HOLD)
    assert INSIDE
    request.trace(PASS, runs=2)
    np.testing.assert_array_equal(request.results["y"], PASS + 1)


def test_a_run_in_the_background_and_a_task() -> None:
    request = compiled_for("NUMPY").create_infer_request()
    request.start_async(HOLD)
    assert ENTERED.acquire(timeout=LIMIT)
    assert request.cancel()
    with pytest.raises(RunCancelled, match="'long'"):
        request.wait()

    async def run() -> None:
        request.start_async(HOLD)
        await asyncio.to_thread(ENTERED.acquire, timeout=LIMIT)
        await asyncio.wait_for(request, 0.1)

    with pytest.raises(TimeoutError):
        asyncio.run(run())
    assert len(INSIDE) == 2
    with pytest.raises(RunCancelled):
        request.wait()
    np.testing.assert_array_equal(request.infer(PASS)["y"], PASS + 1)


def test_a_queue_goes_on() -> None:
    queue = dovetail.AsyncInferQueue(compiled_for("NUMPY"), 2)
    queue.start_async(HOLD)
    assert ENTERED.acquire(timeout=LIMIT)
    assert next(iter(queue)).cancel()
    with pytest.raises(RunCancelled, match="'long'"):
        queue.wait_all()
    assert INSIDE
    for results in queue.map([PASS] * 5):
        np.testing.assert_array_equal(results["y"], PASS + 1)


def _body() -> Graph:
    g = dovetail.GraphBuilder()
    _, going, x = g.input("i", "int64", []), g.input("going", "bool", []), g.input("v", "float32", [2, 3])
    return g.graph([g.node(Identity(), going), g.node(Hold(), x, name="long")], "body")


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "AUTO:NUMPY", "MULTI:NUMPY,NUMPY"])
def test_in_a_sub_graph(device: str) -> None:
    g = dovetail.GraphBuilder()
    times, going, x = g.input("times", "int64", []), g.constant(np.array(True)), g.input("x", "float32", [2, 3])
    model = g.model([g.node(Loop(body=_body()), times, going, x, name="loop", outputs=["y"])])
    request = compiled_for(device, model).create_infer_request()
    feeds = {"times": np.array(2), "x": HOLD}
    with at_entry(request.cancel), pytest.raises(RunCancelled, match="'long'"):
        request.infer(feeds)
    assert INSIDE
    np.testing.assert_array_equal(request.infer({**feeds, "x": PASS})["y"], PASS + 2)
    open_gate()
    np.testing.assert_array_equal(request.infer(feeds)["y"], HOLD + 2)


class HoldNonZero(NonZero):
    """As `Hold`, on the host, because its output shape depends on data."""

    domain = "test"

    def reference(self, X: Any) -> Any:
        if X.size and X.flat[0] == 7:
            wait_inside()
        return super().reference(X)


def test_a_large_node_on_the_host() -> None:
    g = dovetail.GraphBuilder()
    model = g.model([g.node(HoldNonZero(), g.input("x", "uint8", [None]), name="long", outputs=["y"])])
    request = compiled_for("NUMPY", model).create_infer_request()
    with at_entry(request.cancel), pytest.raises(RunCancelled, match="'long'"):
        request.infer(np.full(2_000_000, 7, np.uint8))
    assert INSIDE
    np.testing.assert_array_equal(request.infer(np.array([0, 3], np.uint8))["y"], [[1]])


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_a_node_that_was_left_writes_into_no_later_result(device: str) -> None:
    request = compiled_for(device).create_infer_request()
    with at_entry(request.cancel), pytest.raises(RunCancelled):
        request.infer(HOLD)
    kept = request.infer(PASS, share_outputs=True)
    assert INSIDE
    open_gate()
    np.testing.assert_array_equal(kept["y"], PASS + 1)


def test_a_node_that_was_left_does_not_write_into_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """NUMPY writes the sum into the array of the state."""
    g = dovetail.GraphBuilder()
    x, past = g.input("x", "float32", (2, 3)), g.input("past", "float32", (2, 3))
    compiled = compiled_for("NUMPY", g.model([g.node(Add(), past, x, outputs=["present"])]), STATE="past:present")
    (step,) = compiled.plan(((2, 3), (2, 3))).steps
    object.__setattr__(step, "pace", interruptible.Pace("node 'long'", estimate=math.inf))
    create = step.executable.create_request

    def create_request() -> Any:
        made = create()
        run = made.run

        def held_run(inputs: Any) -> Any:
            if not GATE.is_set():
                wait_inside()
            return run(inputs)

        monkeypatch.setattr(made, "run", held_run, raising=False)
        return made

    monkeypatch.setattr(step.executable, "create_request", create_request)
    request = compiled.create_infer_request()
    old = request.query_state()["past"]
    with at_entry(request.cancel), pytest.raises(RunCancelled):
        request.infer(PASS)
    request.reset_state()
    open_gate()
    np.testing.assert_array_equal(old, PASS, "the node has written into the old array")
    np.testing.assert_array_equal(request.query_state()["past"], np.zeros((2, 3)))
    request.infer(PASS)
    np.testing.assert_array_equal(request.query_state()["past"], PASS)


def test_threads_and_buffers_do_not_grow_over_many_cancelled_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compiled_for("NUMPY")
    (executable,) = [s.executable for s in compiled.plan(((2, 3),)).steps]
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    create = executable.create_request

    def create_request() -> Any:
        made = create()
        alive.add(made)
        return made

    monkeypatch.setattr(executable, "create_request", create_request)
    before = threading.active_count()
    request = compiled.create_infer_request()
    for _ in range(interruptible._MOST):
        with at_entry(request.cancel), pytest.raises(RunCancelled, match=r"'long' \(test::Hold\)\n"):
            request.infer(HOLD)
    for _ in range(20):
        request.start_async(HOLD)
        request.cancel()
        with pytest.raises(RunCancelled):
            request.wait()
    assert len(INSIDE) == interruptible._MOST
    assert len(alive) <= interruptible._MOST + 1
    open_gate()
    np.testing.assert_array_equal(request.infer(HOLD)["y"], HOLD + 1)
    assert len(alive) == 1
    compiled.close()
    assert threading.active_count() <= before


def test_a_run_waits_for_the_end_of_nodes_that_others_left() -> None:
    compiled = compiled_for("NUMPY")
    for _ in range(interruptible._MOST):
        request = compiled.create_infer_request()
        with at_entry(request.cancel), pytest.raises(RunCancelled):
            request.infer(HOLD)
    last = compiled.create_infer_request()
    last.start_async(PASS)
    assert not last.wait(0.1)
    open_gate()
    assert last.wait(LIMIT)
    np.testing.assert_array_equal(last.results["y"], PASS + 1)


def test_closing_does_not_wait_and_frees_nothing_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    core = dovetail.Core()
    compiled = core.compile_model(held(), "NUMPY")
    (executable,) = [s.executable for s in compiled.plan(((2, 3),)).steps]
    closed: list[set[int]] = []
    monkeypatch.setattr(executable, "close", lambda: closed.append(set(INSIDE)), raising=False)
    request = compiled.create_infer_request()
    with at_entry(request.cancel), pytest.raises(RunCancelled):
        request.infer(HOLD)
    core.close()
    assert INSIDE
    assert not any(closed)


def noting(threads: list[bool], rows: int | str = "N") -> dovetail.CompiledModel:
    """A model of one node that may be long. Each run appends whether it was on the thread of the caller."""
    caller = threading.get_ident()

    class Note(Hold):
        def flops(self, inputs: Any, outputs: Any) -> int:
            return outputs[0].size * 10**9

        def reference(self, X: Any) -> Any:
            threads.append(threading.get_ident() == caller)
            return super().reference(X)

    g = dovetail.GraphBuilder()
    return compiled_for("NUMPY", g.model([g.node(Note(), g.input("x", "float32", [rows, 3]))]))


def test_quick_calls_are_on_the_thread_of_the_caller() -> None:
    """The first run of a node that may be long is on a thread; it was not, and so the next ones are not."""
    here: list[bool] = []
    compiled = noting(here)
    compiled(PASS)
    (step,) = compiled.plan((PASS.shape,)).steps
    assert step.pace is not None
    assert step.pace._seconds > 0
    step.pace._seconds = 0.001  # however busy the machine was
    compiled(PASS)
    compiled.create_infer_request().infer(PASS)
    step.pace._seconds = 1.0
    compiled(PASS)
    assert here == [False, True, True, False]


def test_other_sizes_take_as_long_as_the_speed_of_earlier_runs_says() -> None:
    here: list[bool] = []
    compiled = noting(here)
    compiled(PASS)
    (step,) = compiled.plan((PASS.shape,)).steps
    step.pace._speed.ratio = 0.001 / step.pace._estimate
    compiled(PASS[:1])
    step.pace._speed.ratio = 0.001 / step.pace._estimate
    compiled(np.repeat(PASS, 1000, axis=0))
    assert here == [False, True, False]


def test_ordinary_parts_cost_nothing() -> None:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", [2, 3])
    compiled = compiled_for("NUMPY", g.model([g.node(Add(), x, x)]))
    (step,) = compiled.plan(((2, 3),)).steps
    assert step.pace is None
    assert type(step.create_request()) is type(step.executable.create_request())


def test_errors_of_a_node_on_a_thread_name_it() -> None:
    class Fails(Hold):
        def reference(self, X: Any) -> Any:
            raise ValueError("no such thing")

    g = dovetail.GraphBuilder()
    request = compiled_for(
        "NUMPY", g.model([g.node(Fails(), g.input("x", "float32", [2, 3]), name="bad")])
    ).create_infer_request()
    for _ in range(2):
        with pytest.raises(dovetail.DovetailError, match=r"node 'bad'.*ValueError: no such thing"):
            request.infer(PASS)
