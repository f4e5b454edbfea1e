"""AsyncInferQueue: results in order, awaited results, and errors in their place. Callbacks are tested with requests."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import InferError, InputError, OperatorError, UsageError
from dovetail_ops_onnx.gather import Gather

TABLE = np.arange(100, dtype=np.float32)


@pytest.fixture
def queue(toy_core: Any) -> dovetail.AsyncInferQueue:
    """Of three requests, for a model that looks up a number, and fails for one over 99."""
    core, _ = toy_core(A=lambda node: False)
    g = dovetail.GraphBuilder()
    model = g.model([g.node(Gather(), g.constant(TABLE), g.input("i", "int64", ["N"]))])
    return dovetail.AsyncInferQueue(core.compile_model(model, "A"), 3)


def index(number: int) -> Any:
    return np.array([number])


def test_results_come_in_the_order_of_the_inputs(queue: dovetail.AsyncInferQueue) -> None:
    given = [(37 * i) % 100 for i in range(50)]
    assert [results[0].item() for results in queue.map(index(i) for i in given)] == given
    assert list(queue.map([])) == []
    assert [results["gather:0"].item() for results in queue.map([{"i": index(3)}])] == [3.0]


def test_inputs_are_read_only_as_far_as_results_are_wanted(queue: dovetail.AsyncInferQueue) -> None:
    read = 0

    def inputs() -> Iterator[Any]:
        nonlocal read
        while True:
            read += 1
            yield index(read)

    results = queue.map(inputs())
    assert [next(results)[0].item() for _ in range(4)] == [1, 2, 3, 4]
    assert read <= 4 + len(queue)
    results.close()  # type: ignore[attr-defined]  # a generator
    queue.wait_all()
    assert queue.is_ready()


def test_an_error_is_raised_in_its_place(queue: dovetail.AsyncInferQueue) -> None:
    results = queue.map(index(i) for i in (1, 2, 300, 4))
    assert [next(results)[0].item(), next(results)[0].item()] == [1, 2]
    with pytest.raises(OperatorError):
        next(results)
    with pytest.raises(InputError, match="accepted: int64"):
        list(queue.map([np.zeros(1, np.float32)]))
    assert [found[0].item() for found in queue.map(index(i) for i in range(7))] == list(range(7))


def test_where_no_thread_starts_the_error_says_what_to_do(
    queue: dovetail.AsyncInferQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container with a limit on threads: nothing hangs, runs on the calling thread go on, and later ones too."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(InferError, match=r"(?s)can't start new thread.*infer\(\) runs on the calling thread"):
            queue.start_async(index(3))
        assert queue._requests[0].infer(index(3))[0].item() == 3
        queue.wait_all()
    assert [found[0].item() for found in queue.map(index(i) for i in range(7))] == list(range(7))


def test_callbacks_are_for_start_async(queue: dovetail.AsyncInferQueue) -> None:
    called: list[Any] = []
    queue.set_callback(lambda request, userdata: called.append(userdata))
    assert len(list(queue.map(index(i) for i in range(5)))) == 5
    assert called == []
    queue.start_async(index(1), "one")
    queue.wait_all()
    assert called == ["one"]


def test_a_callback_that_raises_stops_nothing_and_is_reported(queue: dovetail.AsyncInferQueue) -> None:
    called: list[int] = []

    def callback(request: Any, number: int) -> None:
        called.append(number)
        if number == 2:
            raise ValueError("not two")

    queue.set_callback(callback)
    for number in range(8):
        queue.start_async(index(number), number)
    with pytest.raises(ValueError, match="not two"):
        queue.wait_all()
    assert sorted(called) == list(range(8))
    queue.wait_all()


def test_async_for(queue: dovetail.AsyncInferQueue) -> None:
    async def inputs() -> AsyncIterator[Any]:
        for number in range(20):
            await asyncio.sleep(0)
            yield index(number)

    async def collected(given: Any) -> list[float]:
        return [results[0].item() async for results in queue.amap(given)]

    assert asyncio.run(collected(inputs())) == list(range(20))
    assert asyncio.run(collected(index(i) for i in range(20))) == list(range(20))
    assert queue.is_ready()


def test_awaiting_many_at_once(queue: dovetail.AsyncInferQueue) -> None:
    async def all_of_them() -> list[Any]:
        return await asyncio.gather(*(queue.infer(index(i)) for i in (*range(30), 200)), return_exceptions=True)

    found = asyncio.run(all_of_them())
    assert [results[0].item() for results in found[:-1]] == list(range(30))
    assert isinstance(found[-1], OperatorError)
    queue.wait_all()
    assert queue.is_ready()


async def all_are_idle(queue: dovetail.AsyncInferQueue) -> bool:
    end = time.monotonic() + 60
    while not repr(queue).endswith(" 0 in use>") and time.monotonic() < end:
        await asyncio.sleep(0.001)
    return repr(queue).endswith(" 0 in use>")


def test_tasks_that_are_cancelled_while_they_wait_take_no_request(queue: dovetail.AsyncInferQueue) -> None:
    release = threading.Event()
    queue.set_callback(lambda request, userdata: release.wait(60))
    for number in range(3):
        queue.start_async(index(number))

    async def run() -> None:
        tasks = [asyncio.create_task(queue.infer(index(number))) for number in range(8)]
        await asyncio.sleep(0.01)
        for task in tasks[:6]:
            task.cancel()
        release.set()
        *cancelled, one, two = await asyncio.gather(*tasks, return_exceptions=True)
        assert {*map(type, cancelled)} == {asyncio.CancelledError}
        assert [one[0].item(), two[0].item()] == [6, 7]
        assert await all_are_idle(queue)

    asyncio.run(run())


def test_a_task_that_is_cancelled_while_its_inputs_are_read_gives_the_request_back(queue: dovetail.AsyncInferQueue) -> None:
    entered, release = threading.Event(), threading.Event()

    class Slow:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            entered.set()
            release.wait(60)
            return index(1)

    async def run() -> None:
        task = asyncio.create_task(queue.infer([Slow()]))
        assert await asyncio.to_thread(entered.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert repr(queue).endswith(" 1 in use>")  # until the thread has read them
        release.set()
        assert await all_are_idle(queue)
        assert (await queue.infer(index(5)))[0].item() == 5

    asyncio.run(run())


def test_another_event_loop_than_that_of_asyncio_is_refused(queue: dovetail.AsyncInferQueue) -> None:
    """As in trio, which drives coroutines as this test does."""
    request = queue._requests[0]
    request.start_async(index(3))
    for coroutine in (queue.infer(index(1)), anext(queue.amap([index(1)])), request.__await__()):
        with pytest.raises(UsageError, match="needs an event loop of asyncio, and none is running") as caught:
            coroutine.send(None)
        assert "to_thread" in caught.value.hint
    request.wait()
    assert repr(queue).endswith(" 0 in use>")


def test_no_callback_is_made_for_a_run_that_failed(queue: dovetail.AsyncInferQueue) -> None:
    called: list[int] = []
    queue.set_callback(lambda request, number: called.append(number))
    for number in (1, 300, 2):
        queue.start_async(index(number), number)
    with pytest.raises(OperatorError):
        queue.wait_all()
    assert sorted(called) == [1, 2]


def test_it_says_how_many_requests_are_in_use(queue: dovetail.AsyncInferQueue) -> None:
    said: list[str] = []
    queue.set_callback(lambda request, userdata: said.append(repr(queue)))
    queue.start_async(index(1))
    queue.wait_all()
    assert (said, repr(queue)) == (
        ["<AsyncInferQueue of 3 requests, 1 in use>"],
        "<AsyncInferQueue of 3 requests, 0 in use>",
    )


def test_map_in_a_callback_does_not_wait_for_ever(queue: dovetail.AsyncInferQueue) -> None:
    single = dovetail.AsyncInferQueue(queue._requests[0]._compiled, 1)  # type: ignore[arg-type]  # a compiled model
    single.set_callback(lambda request, userdata: list(single.map([index(1)])))
    single.start_async(index(1))
    with pytest.raises(UsageError, match="in a callback of the queue"):
        single.wait_all()


def test_two_requests_a_core(toy_core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    core, _ = toy_core(A=lambda node: False)
    g = dovetail.GraphBuilder()
    compiled = core.compile_model(g.model([g.node(Gather(), g.constant(TABLE), g.input("i", "int64", ["N"]))]), "A")
    monkeypatch.setattr("dovetail.runtime.queue.usable_cpus", lambda: 5)
    assert len(dovetail.AsyncInferQueue(compiled)) == 10


@pytest.mark.parametrize(("cpus", "threads"), [(2, 6), (100, 32)])
def test_threads_for_the_cpus_of_the_process(toy_core: Any, monkeypatch: pytest.MonkeyPatch, cpus: int, threads: int) -> None:
    core, _ = toy_core(A=lambda node: False)
    g = dovetail.GraphBuilder()
    compiled = core.compile_model(g.model([g.node(Gather(), g.constant(TABLE), g.input("i", "int64", ["N"]))]), "A")
    monkeypatch.setattr("dovetail.cpus.usable_cpus", lambda: cpus)
    compiled.submit(lambda: None).result()
    assert compiled._pool._max_workers == threads


def test_as_many_requests_as_the_device_finds_best(toy_core: Any) -> None:
    core, _ = toy_core(A=lambda node: False)
    g = dovetail.GraphBuilder()
    model = g.model([g.node(Gather(), g.constant(TABLE), g.input("i", "int64", ["N"]))])
    assert len(dovetail.AsyncInferQueue(core.compile_model(model, "A", {"NUM_STREAMS": 1000}))) == 1000
