"""Requests: blocking, in the background, awaited, in queues; plans for new shapes; what outlives what."""

import asyncio
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import InferError, InputError, OperatorError, OutOfMemory, RunCancelled, UsageError
from dovetail.graph import Model
from dovetail.op import FLOATS, Operator
from dovetail_ops_onnx.relu import Relu

GATE = threading.Event()
"""Open unless a test holds it."""
GATE.set()


class Slow(Operator):
    """Waits for the gate, sleeps 20 ms, adds one; a negative input is an error of the run."""

    domain = "test"
    inputs = ("X: T",)
    types = {"T": FLOATS}

    def reference(self, X: Any) -> Any:
        GATE.wait()
        time.sleep(0.02)
        if (X < 0).any():
            raise ValueError("negative")
        return X + X.dtype.type(1)


def model(op: Operator, *shape: int | str) -> Model:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", shape or [2])
    return g.model([g.node(op, x, outputs=["y"])])


@pytest.fixture
def slow(toy_core: Any) -> dovetail.CompiledModel:
    core, _ = toy_core(A=lambda node: False)
    compiled: dovetail.CompiledModel = core.compile_model(model(Slow()), "A")
    return compiled


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """The gate, closed: no run ends before the test sets it."""
    GATE.clear()
    yield GATE
    GATE.set()


def x(*values: float) -> Any:
    return np.array(values, np.float32)


def test_results_by_name_and_by_position(slow: dovetail.CompiledModel) -> None:
    results = slow({"x": x(1, 2)})
    assert results["y"].tolist() == results[0].tolist() == [2, 3]
    assert dict(results) == {"y": results[0]}
    assert results[np.int64(-1)] is results["y"]
    with pytest.raises(KeyError, match=r"no output 'z'"):
        results["z"]
    with pytest.raises(IndexError, match=r"no output 1; there are 1: y"):
        results[1]


def test_an_output_may_be_a_constant(toy_core: Any) -> None:
    core, _ = toy_core(A=lambda node: False)
    g = dovetail.GraphBuilder()
    y = g.node(Relu(), g.input("x", "float32", [2]))
    for value in (x(5, 6), np.array([1])):  # the number of a slot, too
        c = g.constant(value)
        results = core.compile_model(g.model([c, y]), "A")({"x": x(-1, 2)})
        assert results[1].tolist() == [0, 2]
        assert results[0].tolist() == value.tolist()
    only = core.compile_model(g.model([c]), "A")
    assert only({"x": x(-1, 2)})[0].tolist() == [1]


def test_outputs_are_fresh_arrays(slow: dovetail.CompiledModel) -> None:
    first = slow({"x": x(1, 2)})[0]
    second = slow({"x": x(5, 6)})[0]
    assert first.tolist() == [2, 3]
    assert second.tolist() == [6, 7]
    assert first.flags.writeable


def test_async_run_with_callback(slow: dovetail.CompiledModel, held: threading.Event) -> None:
    request = slow.create_infer_request()
    seen: list[Any] = []
    request.set_callback(seen.append)
    array = x(1, 2)
    request.start_async({"x": array}, "job 1")
    array[:] = 100
    assert request.wait(0.0) is False
    held.set()
    assert request.wait(600) is True
    assert seen == ["job 1"]
    assert request.results[0].tolist() == [2, 3]


def test_waiting_in_the_callback_of_the_run_is_an_error(slow: dovetail.CompiledModel) -> None:
    request = slow.create_infer_request()
    request.set_callback(lambda data: request.wait(10))
    request.start_async({"x": x(1, 2)})
    with pytest.raises(UsageError, match=r"wait\(\) in the request's own callback would wait for itself"):
        request.wait(5)
    request.set_callback(None)
    assert request.infer({"x": x(1, 2)})[0].tolist() == [2, 3]


def test_a_request_runs_one_inference_at_a_time(slow: dovetail.CompiledModel, held: threading.Event) -> None:
    request = slow.create_infer_request()
    request.start_async({"x": x(1, 2)})
    for call in (request.infer, request.start_async):
        with pytest.raises(UsageError, match=r"running"):
            call({"x": x(1, 2)})
    with pytest.raises(UsageError, match=r"running"):
        request.close()
    held.set()
    request.wait()
    assert request.infer({"x": x(3, 4)})[0].tolist() == [4, 5]


def test_an_error_of_the_run_is_raised_by_wait_and_the_request_stays_usable(slow: dovetail.CompiledModel) -> None:
    request = slow.create_infer_request()
    request.start_async({"x": x(-1, 2)})
    with pytest.raises(OperatorError, match=r"node 'slow' .* raised ValueError: negative"):
        request.wait()
    request.start_async({"x": x(1, 2)})
    assert request.wait()


def test_await(slow: dovetail.CompiledModel) -> None:
    async def run() -> list[Any]:
        requests = [slow.create_infer_request() for _ in range(3)]
        for i, request in enumerate(requests):
            request.start_async({"x": x(i, i)})
        return [(await r)["y"].tolist() for r in requests]

    assert asyncio.run(run()) == [[1, 1], [2, 2], [3, 3]]


def fill_workers(compiled: dovetail.CompiledModel, release: threading.Event) -> None:
    """Let every worker thread wait for the event."""
    first = compiled.submit(lambda: None)
    first.result()
    for _ in range(compiled._pool._max_workers):
        compiled.submit(release.wait)


def test_a_run_that_has_not_begun_can_be_cancelled(slow: dovetail.CompiledModel) -> None:
    request, release, seen = slow.create_infer_request(), threading.Event(), []
    request.set_callback(seen.append)
    fill_workers(slow, release)
    request.start_async({"x": x(1, 2)})
    ended: list[Any] = []
    request.then(ended.append)
    assert request.cancel()
    with pytest.raises(InferError, match=r"the run was cancelled before it began"):
        request.wait()
    assert [type(error) for error in ended] == [RunCancelled]
    release.set()
    request.start_async({"x": x(3, 4)}, "second")
    request.wait()
    assert not request.cancel()
    assert (seen, request.results[0].tolist()) == (["second"], [4, 5])


ENDING = """
import atexit, sys
import numpy as np
import dovetail
from dovetail_ops_onnx.relu import Relu
g = dovetail.GraphBuilder()
compiled = dovetail.Core(config=None).compile_model(g.model([g.node(Relu(), g.input("x", "float32", [2]))]), "NUMPY")
inputs = {"x": np.ones(2, np.float32)}

@atexit.register
def late():
    request = compiled.create_infer_request()
    try:
        request.start_async(inputs)
    except dovetail.DovetailError as error:
        print(error.message, "|", error.hint)
    print(request.infer(inputs)[0].tolist())

assert "concurrent.futures" not in sys.modules or BEFORE
if BEFORE:
    request = compiled.create_infer_request()
    request.start_async(inputs)
    request.wait()
"""


@pytest.mark.parametrize("before", [True, False])
def test_a_run_in_the_background_that_is_started_as_the_process_ends(before: bool) -> None:
    """An error that says so, and the request can run on the calling thread."""
    code = ENDING.replace("BEFORE", str(before))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    refused, ran = done.stdout.splitlines()
    assert "no run starts in the background: can" in refused
    assert "after" in refused
    assert "shutdown | infer() runs on the calling thread." in refused
    assert (ran, done.returncode) == ("[1.0, 1.0]", 0)


def test_a_cancelled_task_leaves_its_request_usable(slow: dovetail.CompiledModel) -> None:
    request, release = slow.create_infer_request(), threading.Event()
    fill_workers(slow, release)

    async def run() -> None:
        request.start_async({"x": x(1, 2)})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_await(request), 0.01)

    async def _await(one: dovetail.InferRequest) -> Any:
        return await one

    asyncio.run(run())
    release.set()
    assert request.infer({"x": x(1, 2)})[0].tolist() == [2, 3]


ASK: list[Callable[[dovetail.InferRequest], Any]] = [
    lambda request: request.wait(),
    lambda request: request.cancel(),
    lambda request: request.results,
    lambda request: request.then(print),
    lambda request: next(request.__await__()),
]


@pytest.mark.parametrize("ask", ASK)
def test_asking_before_any_run_is_an_error(slow: dovetail.CompiledModel, ask: Callable[[dovetail.InferRequest], Any]) -> None:
    with pytest.raises(UsageError):
        ask(slow.create_infer_request())


def test_use_after_close(slow: dovetail.CompiledModel) -> None:
    request = slow.create_infer_request()
    request.infer(x(1, 2))
    request.close()
    request.close()
    with pytest.raises(UsageError, match=r"closed"):
        request.infer(x(1, 2))
    slow.close()
    for use in (lambda: slow(x(1, 2)), slow.create_infer_request, lambda: slow.plan(((2,),))):
        with pytest.raises(UsageError, match=r"closed"):
            use()


def test_the_queue_runs_everything_once_and_in_parallel(slow: dovetail.CompiledModel) -> None:
    queue = dovetail.AsyncInferQueue(slow, jobs=4)
    answers: dict[int, Any] = {}
    threads: set[str] = set()

    def done(request: dovetail.InferRequest, index: int) -> None:
        threads.add(threading.current_thread().name)
        answers[index] = request.results[0][0]

    queue.set_callback(done)
    for i in range(20):
        queue.start_async({"x": x(i, 0)}, i)
    queue.wait_all()
    assert answers == {i: i + 1 for i in range(20)}
    assert len(queue) == len(list(queue)) == 4
    assert len(threads) > 1
    assert queue.is_ready()


def test_the_queue_reports_the_first_error_and_goes_on(slow: dovetail.CompiledModel) -> None:
    queue = dovetail.AsyncInferQueue(slow, jobs=2)
    with pytest.raises(InputError):
        queue.start_async({"x": x(1, 2, 3)})
    queue.start_async({"x": x(-1, 0)})
    with pytest.raises(OperatorError, match=r"negative"):
        queue.wait_all()
    queue.set_callback(lambda request, data: 1 / 0)
    queue.start_async({"x": x(1, 0)})
    with pytest.raises(ZeroDivisionError):
        queue.wait_all()
    queue.wait_all()
    assert queue.is_ready()


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (lambda queue: queue.wait_all(), r"wait_all\(\) in a callback"),
        (lambda queue: queue.start_async({"x": x(1, 0)}), r"start_async\(\) in a callback of the queue, all of whose"),
        (lambda queue: sys.exit("stop"), "stop"),
    ],
)
def test_a_callback_that_would_stop_the_queue_is_an_error_of_wait_all(
    slow: dovetail.CompiledModel, ask: Callable[[dovetail.AsyncInferQueue], Any], error: str
) -> None:
    queue = dovetail.AsyncInferQueue(slow, jobs=1)
    queue.set_callback(lambda request, data: ask(queue))
    queue.start_async({"x": x(1, 0)})
    with pytest.raises((UsageError, SystemExit), match=error):
        queue.wait_all()
    assert queue.is_ready()


def test_a_callback_may_start_what_need_not_wait(slow: dovetail.CompiledModel) -> None:
    queue, found = dovetail.AsyncInferQueue(slow, jobs=2), []

    def chained(request: dovetail.InferRequest, left: int) -> None:
        found.append(request.results[0][0])
        if left:
            queue.start_async({"x": request.results[0]}, left - 1)

    queue.set_callback(chained)
    queue.start_async({"x": x(0, 0)}, 2)
    queue.wait_all()
    assert found == [1, 2, 3]


def test_new_shapes_make_new_plans_and_old_ones_go(toy_core: Any) -> None:
    core, opened = toy_core(A=lambda node: False)
    compiled = core.compile_model(model(Relu(), "N", 2), "A", {"PLAN_CACHE": 2})
    assert compiled.plans == {}
    with pytest.raises(UsageError, match=r"open dimensions"):
        compiled.report()
    for n in (1, 3, 1, 0, 1):
        assert compiled(np.full((n, 2), -1, np.float32))["y"].shape == (n, 2)
    assert len(opened[0].compiled) == 3
    assert list(compiled.plans) == [((0, 2),), ((1, 2),)]
    assert compiled.report({"x": [3, 2]}).nodes[0].op == "Relu"
    assert str(compiled.outputs["y"]) == "float32[3, 2]"
    assert str(compiled.inputs["x"]) == "float32[N, 2]"


def test_many_threads_share_one_compiled_model(slow: dovetail.CompiledModel) -> None:
    answers: dict[int, Any] = {}

    def work(i: int) -> None:
        answers[i] = [slow(x(i, k))[0].tolist() for k in range(3)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert answers == {i: [[i + 1, k + 1] for k in range(3)] for i in range(8)}


def test_threads_that_ask_for_the_same_new_shape_plan_once(toy_core: Any) -> None:
    core, opened = toy_core(A=lambda node: False)
    compiled = core.compile_model(model(Relu(), "N"), "A")
    threads = [threading.Thread(target=lambda: compiled(x(1, 2))) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(opened[0].compiled) == 1


def test_a_handle_pickles_as_what_it_was_made_from(slow: dovetail.CompiledModel) -> None:
    rebuild, (recipe,) = slow.__reduce__()
    assert (recipe.device, recipe.properties) == ("A", {})
    assert recipe.settings == {"plugins": None, "prefer": (), "config": None}
    assert rebuild(recipe).inputs == slow.inputs
    assert [n.op.key for n in pickle.loads(recipe.content).graph.nodes] == ["test::Slow"]


def test_an_output_may_be_an_input_or_a_constant(toy_core: Any) -> None:
    core, _ = toy_core(A=lambda node: False)
    g = dovetail.GraphBuilder()
    a = g.input("a", "float32", [2])
    compiled = core.compile_model(g.model([a, g.constant([7.0], "float32"), g.node(Relu(), a), a]), "A")
    same, seven, relu, again = (compiled(x(-1, 2))[i] for i in range(4))
    assert same.tolist() == again.tolist() == [-1, 2]
    assert seven.tolist() == [7]
    assert relu.tolist() == [0, 2]


def test_a_model_without_nodes_runs(toy_core: Any) -> None:
    core, _ = toy_core(A=lambda node: False)
    g = dovetail.GraphBuilder()
    compiled = core.compile_model(g.model([g.constant([1.0], "float32", name="c")]), "A")
    assert compiled()["c"].tolist() == [1]


@pytest.mark.parametrize(("said", "left"), [([], "the host has none left"), (["for y"], "for y")])
def test_memory_that_runs_out_beside_the_nodes(
    toy_core: Any, monkeypatch: pytest.MonkeyPatch, said: list[str], left: str
) -> None:
    core, _ = toy_core(A=lambda node: False)
    with core.compile_model(model(Relu()), "A") as compiled:
        request = compiled.create_infer_request()

        def advance(*inputs: Any) -> Any:
            raise MemoryError(*said)

        monkeypatch.setattr(request, "_advance", advance)
        with pytest.raises(OutOfMemory, match=f"memory ran out: {left}"):
            request.infer(np.ones(2, np.float32))


class Late(TimeoutError):
    """Raised by the handler of a signal, as programs do that limit their time."""


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="the system has no SIGUSR1")
def test_what_a_signal_handler_raises_in_wait_is_not_the_end_of_its_time(
    slow: dovetail.CompiledModel, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(number: int, frame: Any) -> None:
        raise Late

    request = slow.create_infer_request()
    request.start_async(x(1, 2))
    before = signal.signal(signal.SIGUSR1, late)
    try:
        with monkeypatch.context() as patch:
            patch.setattr("concurrent.futures.Future.result", lambda self, timeout: signal.raise_signal(signal.SIGUSR1))
            with pytest.raises(Late):
                request.wait(30)
    finally:
        signal.signal(signal.SIGUSR1, before)
    held.set()
    assert request.wait(30)
    assert request.results["y"].tolist() == [2, 3]
